import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { chaos } from '../../src/commands/break/chaos.ts'
import { toolCall } from '../support/caller.ts'
import { chaosApp, failing } from '../routes/chaos-app.ts'

const plan = { seed: 5, faults: [failing('a', { rate: 0.5 }), failing('b', { when: { everyNth: 3 } })] }

/** Plays one process: journals the decisions of a plan and of a runtime fault about forty calls in `file`. */
async function runOnce(file: string, probability = 0.3): Promise<void> {
  const journal = { file, maxSize: '1KiB' }
  const { controller, send, ask } = chaosApp({ config: { ...plan, journal } })
  controller.arm('me', 'a test')
  const calls = async (name: string) => {
    for (let number = 0; number < 20; number++) await send(toolCall(name, { number }))
  }
  await calls('t')
  const config = { type: 'error', statusCode: 500, probability }
  const injected = await ask('POST', '/chaos/inject', { target: '*', config })
  await calls('u')
  await ask('POST', '/chaos/clear', { faultId: injected.body.faultId })
  await controller.close()
}

/** The journal of one run, and a function that runs the command on this journal. */
async function recorded(context: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-replay-'))
  context.after(() => rm(folder, { recursive: true }))
  const journal = join(folder, 'journal.jsonl')
  await runOnce(journal)

  async function replay(read: unknown, ...args: string[]) {
    const file = join(folder, 'plan.json')
    await writeFile(file, typeof read === 'string' ? read : JSON.stringify(read))
    let stdout = ''
    let stderr = ''
    const out = {
      stdout: (line: string) => void (stdout += `${line}\n`),
      stderr: (line: string) => void (stderr += `${line}\n`),
    }
    const files = args.includes('--journal') ? [] : ['--journal', journal]
    const code = await chaos(['replay', '--plan', file, ...files, ...args], out, {})
    return { code, stdout, stderr }
  }
  return { journal, folder, replay }
}

test('the same plan gives the same decisions again, including faults of the runtime API', async (context) => {
  const { replay } = await recorded(context)
  const { code, stdout, stderr } = await replay(plan)
  assert.deepEqual([code, stderr], [0, ''])
  assert.match(stdout, /^\d+ lines, the chain is whole; 100 of 100 decisions are the same\n$/)
})

test('another plan is compared by its different decisions', async (context) => {
  const { replay } = await recorded(context)
  const rarer = await replay({ ...plan, faults: [failing('a', { rate: 0.01 }), plan.faults[1]] })
  assert.equal(rarer.code, 1)
  assert.match(rarer.stdout, /^SEQ +FAULT +WHAT +WAS +NOW\n +\d+ +a +decision +hit +rate/m)
  const missing = await replay({ ...plan, faults: [plan.faults[0]] })
  assert.match(missing.stdout, /b +fault missing/)
  const reseeded = await replay({ ...plan, seed: 6 }, '--json')
  assert.equal(reseeded.code, 1)
  const { decisions, same, differing } = JSON.parse(reseeded.stdout)
  assert.deepEqual([decisions, differing.length > 0, same < decisions], [100, true, true])
})

test('a journal that somebody changed is refused, with the line', async (context) => {
  const { journal, replay } = await recorded(context)
  const text = await readFile(journal, 'utf8')
  await writeFile(journal, text.replace('"decision":"not_injected"', '"decision":"injected"'))
  const { code, stdout, stderr } = await replay(plan)
  assert.deepEqual([code, stdout], [1, ''])
  assert.match(
    stderr,
    /^breakwater: the chain of .* is broken: line \d+ was changed, or made without the key, or a line before it is missing/,
  )
})

test('a journal of several processes and files is read file by file, the oldest first', async (context) => {
  const { journal, replay } = await recorded(context)
  await runOnce(journal, 0.9)
  const files = [`${journal}.1`, journal]
  const both = await replay(plan, ...files.flatMap((file) => ['--journal', file]))
  assert.match(both.stdout, /200 of 200 decisions are the same/)
  assert.equal(both.code, 0)
  const swapped = await replay(plan, ...files.reverse().flatMap((file) => ['--journal', file]))
  assert.match(swapped.stderr, /does not continue the previous file/)
  const missing = await replay(plan, '--journal', `${journal}.9`)
  assert.deepEqual([missing.code, /cannot read/.test(missing.stderr)], [1, true])
})

test('a plan is found in a YAML file, in a block of its own, in a config, and in another format', async (context) => {
  const { replay } = await recorded(context)
  const yaml = 'enabled: true\nseed: 5\nfaults:\n  - { name: a, type: rpc.error, rate: 0.5, ttl: 15m }\n'
  const more = '  - { name: b, type: rpc.error, rate: 1, ttl: 15m, when: { everyNth: 3 } }\n'
  assert.equal((await replay(yaml + more)).code, 0)
  const config = { mcpServers: {}, chaos: { ...plan, enabled: true } }
  const whole = await replay(config)
  assert.equal(whole.code, 0, whole.stderr)
  const foreign = await replay({ seed: 5, faults: [{ type: 'error_injection', rate: 0.5 }] })
  assert.match(foreign.stdout, /a +fault missing/)
})

test('an unreadable plan gives a finding', async (context) => {
  const { replay } = await recorded(context)
  const wrong = await replay({ faults: [failing('a', { rate: 2 })] })
  assert.equal(wrong.code, 1)
  assert.match(wrong.stderr, /plan\.json {2}faults\[0\]\.rate {2}expected a number from 0 to 1, found 2/)
  assert.equal((await replay('a: [')).code, 1)
})

test('a journal without decisions proves nothing', async (context) => {
  const { folder, replay } = await recorded(context)
  const empty = join(folder, 'empty.jsonl')
  await writeFile(empty, '')
  const { code, stderr } = await replay(plan, '--journal', empty)
  assert.deepEqual([code, stderr], [1, 'breakwater: the journal has no decisions: nothing was compared\n'])
})

test('a missing journal is reported in words', async (context) => {
  const { folder, replay } = await recorded(context)
  const none = join(folder, 'none.jsonl')
  const { code, stderr } = await replay(plan, '--journal', none)
  assert.deepEqual([code, stderr], [1, `breakwater: cannot read ${none}: no such file\n`])
})
