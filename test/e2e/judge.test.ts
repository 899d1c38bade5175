import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import type { RuleName } from '../../src/judge/index.ts'
import { bound } from '../support/bound.ts'
import { main } from '../support/main.ts'
import { armed, cleanUp, Gateway, type Json, newFolder } from './support/gateway.ts'
import { closeClients, connect, textOf } from './support/sdk-client.ts'
import { httpShop } from './support/shop.ts'

/** A write of each agent, because each agent meets the fault once. */
const writes = ['write_blind', 'write_careful'] as const

const promises = { mustRun: [], polls: [], repeatable: [] }

let folder: string
let gateway: Gateway

const file = () => join(folder, 'calls.jsonl')

before(async () => {
  folder = await newFolder()
  const url = await httpShop(['json_price', 'plain_look', ...writes])
  const match = (tool: string) => ({ match: { server: 'shop', tool } })
  gateway = await Gateway.start({
    servers: { shop: { url, era: 'legacy', trusted: true } },
    gateway: { environment: 'test' },
    telemetry: { recording: { file: file() } },
    chaos: armed([
      {
        name: 'dear',
        type: 'result.drift',
        operators: [{ op: 'unit', path: '/weight', factor: 4321 }],
        ...match('json_price'),
      },
      ...writes.map((tool) => ({
        name: `cut-${tool}`,
        type: 'conn.reset',
        maxInjections: 1,
        ...match(tool),
      })),
    ]),
  })
  await gateway.waitFor('up', 'shop')
  await writeFile(join(folder, 'contract.json'), JSON.stringify(promises))
})

after(async () => {
  await closeClients()
  await cleanUp()
})

/** Connects an agent with one task. A failed call returns undefined. */
async function agentOf(task: string) {
  const client = await connect(gateway.mcp('shop'))
  return async (name: string, args: Json = {}): Promise<string | undefined> => {
    const params = { name, arguments: args, _meta: { 'dev.breakwater/intent': task } }
    try {
      return textOf(await client.callTool(params))
    } catch (error) {
      assert.match(String(error), /may have run/)
      return undefined
    }
  }
}

const weightIn = (reply: string | undefined) => (JSON.parse(reply ?? '') as { weight: number }).weight

interface Judged {
  readonly tasks: number
  readonly rules: readonly { readonly rule: RuleName; readonly found: number; readonly decidable: number }[]
  readonly findings: readonly {
    readonly rule: RuleName
    readonly level: string
    readonly fault?: string
    readonly calls: readonly { readonly line: number }[]
  }[]
}

/** Runs the command to its end. */
const judge = (...args: readonly string[]) =>
  new Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }>((resolve) => {
    const all = [main, 'judge', file(), '--contract', join(folder, 'contract.json'), ...args]
    const env = bound({ ...process.env, NO_COLOR: '1' })
    execFile(process.execPath, all, { env }, (error, stdout, stderr) =>
      resolve({ code: Number(error?.code ?? 0), stdout, stderr }),
    )
  })

test('a blind retry and a corrupt value in use are found with their faults, and a careful agent gets no finding', async () => {
  const blind = await agentOf('blind')
  const price = weightIn(await blind('json_price', { order_id: 1 }))
  assert.equal(price, 13.25 * 4321, 'the fault changed the reply')
  const order = { order_id: 1, price }
  assert.equal(await blind('write_blind', order), undefined)
  assert.equal(await blind('write_blind', order), 'write_blind 2')

  const careful = await agentOf('careful')
  await careful('json_price', { order_id: 1 })
  assert.equal(await careful('write_careful', { order_id: 1 }), undefined)
  await careful('plain_look')
  assert.equal(await careful('write_careful', { order_id: 1 }), 'write_careful 2')
  const outcomes = ['blind', 'careful'].map((intent) => ({ intent, outcome: 'succeeded' }))
  assert.equal((await gateway.post('/admin/outcomes', outcomes)).status, 200)

  // The gateway writes everything recorded before its end.
  gateway.program.signal('SIGTERM')
  assert.equal((await gateway.program.ended).code, 0)

  const { code, stdout } = await judge('--format', 'json')
  assert.equal(code, 0)
  const { tasks, rules, findings } = JSON.parse(stdout) as Judged
  assert.equal(tasks, 2)
  const counts = rules.map(({ rule, found, decidable }) => [rule, `${found} of ${decidable}`])
  assert.deepEqual(Object.fromEntries(counts), {
    runaway: '0 of 2',
    blind_retry: '1 of 2',
    duplicate_write: '1 of 2',
    corrupt_value_used: '1 of 2',
    false_success: '0 of 2',
    ignored_partial: '0 of 2',
    ignored_retry_after: '0 of 2',
  })
  assert.deepEqual(
    findings.map(({ rule, level, fault }) => [rule, level, fault]),
    [
      ['blind_retry', 'proven', 'cut-write_blind (conn.reset)'],
      ['duplicate_write', 'likely', 'cut-write_blind (conn.reset)'],
      ['corrupt_value_used', 'proven', 'dear (result.drift)'],
      ['corrupt_value_used', 'proven', 'dear (result.drift)'],
    ],
  )
  assert.deepEqual(
    findings.map(({ calls }) => calls.map(({ line }) => line)),
    [
      [3, 4],
      [3, 4],
      [2, 3],
      [2, 4],
    ],
  )
  const gated = await judge('--fail-on', 'blind_retry>0,runaway>0')
  assert.equal(gated.code, 1)
  assert.match(gated.stderr, /^breakwater: blind_retry>0 is met: 1 of 2 tasks$/m)
})
