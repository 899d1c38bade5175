import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { sim } from '../../src/commands/compare/sim/replay.ts'
import { configHash } from '../../src/config/hash.ts'
import { policiesOf } from '../../src/sim/policy-choices.ts'
import type { ReplayReport } from '../../src/sim/replay-text.ts'
import { call, failure, header } from '../sim/recorded.ts'

const policies = `defaults: { retry: { maxRetries: 0 } }
sets:
  patient: { retry: { maxRetries: 2, base: 1ms, cap: 1ms } }
`
const hash = configHash(
  policiesOf({
    defaults: { retry: { maxRetries: 0 } },
    sets: { patient: { retry: { maxRetries: 2, base: '1ms', cap: '1ms' } } },
  }),
)

/** A folder with a recording and policies, and a function that runs the command there. */
async function setUp(t: TestContext, texts: Readonly<Record<string, string>> = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'sim-'))
  t.after(() => rm(folder, { recursive: true }))
  const calls = Array.from({ length: 60 }, (_, n) =>
    call({
      at: n * 100,
      task: `task ${n % 20}`,
      key: `${n}`,
      ...(n % 6 === 0 && { result: 'transport_error', wrong: true, attempts: [failure()] }),
    }),
  )
  const lines = [header({ policiesHash: hash }), ...calls].map((line) => `${JSON.stringify(line)}\n`)
  const files = { 'calls.jsonl': lines.join(''), 'policies.yaml': policies, ...texts }
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text)
  const run = async (...args: readonly string[]) => {
    const [output, errors]: [string[], string[]] = [[], []]
    const out = {
      stdout: (line: string) => void output.push(line),
      stderr: (line: string) => void errors.push(line.replaceAll(`${folder}/`, '')),
    }
    const full = args.map((arg) => (/\.(jsonl|yaml)$/.test(arg) ? join(folder, arg) : arg))
    const code = await sim(full, out, {})
    return { code, output: output.join('\n').replaceAll(`${folder}/`, ''), errors: errors.join('\n') }
  }
  return Object.assign(run, { folder })
}

const usual = ['--recording', 'calls.jsonl', '--policies', 'policies.yaml']

test('a recording is played under the policies of a file and under a set of them, and they are compared', async (t) => {
  const run = await setUp(t)
  const { code, output, errors } = await run(...usual, '--set', 'patient', '--json')
  assert.deepEqual([code, errors], [0, ''])
  const report = JSON.parse(output) as ReplayReport
  assert.deepEqual([report.calls, report.tasks, report.notes], [60, 20, []])
  const [same, patient] = report.replayed
  assert.equal(report.recorded.figures.tcsr.estimate, 50 / 60)
  assert.equal(same!.figures.tcsr.estimate, 50 / 60)
  assert.ok(patient!.figures.tcsr.estimate > 0.9)
  assert.ok(patient!.figures.retries.estimate > 0.1)
  assert.ok(report.difference!.figures.tcsr.low > 0)
  assert.equal(report.drawn['policies.yaml'], 0)
  assert.ok(report.drawn.patient! > 0)
  assert.equal((await run(...usual, '--set', 'patient', '--json')).output, output)
})

test('the report says what was played, in a table, and what a replay cannot know', async (t) => {
  const run = await setUp(t)
  const { output } = await run(...usual, '--set', 'patient')
  assert.match(output, /^# Replay of 60 recorded calls$/m)
  assert.match(output, /^\| {2}\| recorded \| policies.yaml \| patient \| difference \|$/m)
  assert.match(output, /^\| calls that went well \(TCSR\) \| 83\.\d % \(\d.* to .*\) \| 83\./m)
  assert.match(output, /^## What a replay cannot know$/m)
  assert.match(output, /^- 0\.0 % of the attempts under policies.yaml were drawn\.$/m)
})

test('a whole config is accepted, and a named block; policies other than the recording’s are reported', async (t) => {
  const indented = policies.replaceAll(/^/gm, '  ')
  const run = await setUp(t, {
    'gateway.yaml':
      'mcpServers: { shop: { url: "http://127.0.0.1:1/mcp" } }\npolicies: { defaults: { retry: false } }\n',
    'named.yaml': `policies:\n${indented}`,
  })
  const config = await run('--recording', 'calls.jsonl', '--config', 'gateway.yaml', '--json')
  assert.deepEqual((JSON.parse(config.output) as ReplayReport).notes, [
    'the policies during the recording differed from gateway.yaml',
  ])
  const named = await run('--recording', 'calls.jsonl', '--policies', 'named.yaml', '--json')
  assert.deepEqual((JSON.parse(named.output) as ReplayReport).notes, [])
})

test('without a file the command takes the config of the folder, and names a set alone', async (t) => {
  const indented = policies.replaceAll(/^/gm, '  ')
  const server = 'mcpServers: { shop: { url: "http://127.0.0.1:1/mcp" } }'
  const run = await setUp(t, { 'breakwater.yaml': `${server}\npolicies:\n${indented}` })
  const before = process.cwd()
  t.after(() => process.chdir(before))
  process.chdir(run.folder)
  const found = await run('--recording', 'calls.jsonl', '--set', 'patient', '--json')
  assert.deepEqual([found.code, found.errors], [0, 'breakwater: the config is breakwater.yaml'])
  const named = await run(
    '--recording',
    'calls.jsonl',
    '--config',
    'breakwater.yaml',
    '--set',
    'patient',
    '--json',
  )
  assert.equal(found.output, named.output)
})

test('faults of a plan come on top', async (t) => {
  const plan = 'faults: [ { name: down, type: rpc.error, rate: 1, ttl: 1m, maxConcurrent: 1000 } ]\n'
  const run = await setUp(t, { 'plan.yaml': plan })
  const { output, errors } = await run(...usual, '--plan', 'plan.yaml', '--json')
  assert.equal((JSON.parse(output) as ReplayReport).replayed[0]!.figures.tcsr.estimate, 0, errors)
})

test('an extra fault without hits is reported, and without any hits nothing is shown', async (t) => {
  const down = '{ name: down, type: rpc.error, rate: 1, ttl: 1m, maxConcurrent: 1000 }'
  const astray = '{ name: astray, type: rpc.error, rate: 1, ttl: 1m, match: { server: other } }'
  const writes = [header({ policiesHash: hash }), call({ effect: 'write' })].map((line) =>
    JSON.stringify(line),
  )
  const run = await setUp(t, {
    'both.yaml': `faults: [ ${down}, ${astray} ]\n`,
    'down.yaml': `faults: [ ${down} ]\n`,
    'writes.jsonl': writes.join('\n'),
  })
  const { output } = await run(...usual, '--plan', 'both.yaml', '--json')
  assert.deepEqual((JSON.parse(output) as ReplayReport).notes, [
    'astray of both.yaml hit no call: no call matches it',
  ])
  const spared = ['--recording', 'writes.jsonl', '--policies', 'policies.yaml', '--plan', 'down.yaml']
  const none = await run(...spared)
  assert.deepEqual([none.code, none.output], [1, ''])
  assert.match(
    none.errors,
    /no fault of down.yaml hit a call:\n.*down: it spares tools that are not known to be/,
  )
})

test('a recording that cannot be played is refused, with files and lines', async (t) => {
  const run = await setUp(t, {
    'broken.yaml': 'defaults:\n  retry: { attemps: 2 }\n',
    'empty.jsonl': '',
  })
  const cases: readonly [readonly string[], number, RegExp][] = [
    [['--policies', 'policies.yaml'], 2, /--recording FILE is missing/],
    [['--recording', 'calls.jsonl', '--set', 'patient'], 1, /no policies to play under: expected --policies/],
    [[...usual, '--config', 'policies.yaml'], 2, /expected --policies FILE or --config FILE, not both/],
    [
      [...usual, '--set', 'patent'],
      1,
      /^breakwater: policies.yaml has no policy set "patent": did you mean patient\?$/,
    ],
    [
      ['--recording', 'calls.jsonl', '--policies', 'broken.yaml'],
      1,
      /^breakwater: broken.yaml:2:12 {2}.*attemps/,
    ],
    [['--recording', 'calls.jsonl', '--policies', 'none.yaml'], 1, /^breakwater: none.yaml {2}/],
    [['--recording', 'empty.jsonl', '--policies', 'policies.yaml'], 1, /empty.jsonl is empty: nothing/],
  ]
  for (const [args, code, message] of cases) {
    const got = await run(...args)
    assert.equal(got.code, code, got.errors)
    assert.match(got.errors, message)
  }
})
