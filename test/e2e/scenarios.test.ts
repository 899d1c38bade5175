import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { scenarioNames } from '../../src/commands/break/scenario/library.ts'
import { until } from '../support/until.ts'
import { catalogueServer } from './support/catalogue-server.ts'
import { cleanUp, Gateway, type Json, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { assertionsIn } from './support/scenario-lines.ts'
import { main } from '../support/main.ts'

/** Durations of the faults until all their effects have shown, at a server with a read-only tool. */
const durations: Readonly<Record<string, string>> = {
  cascading: '12s',
  'dependency-down': '3s',
  'dependency-slow': '5s',
  'dependency-then-outage': '8s',
  'flapping-server': '9s',
  hang: '8s',
  'head-of-line': '7s',
  'malformed-replies': '3s',
  'outage-and-recovery': '3s',
  'rate-limited': '4s',
  'retry-storm': '4s',
  'schema-drift': '3s',
  'servers-down': '3s',
  'slow-long-tail': '8s',
  'token-expired': '9s',
  'truncated-logs': '3s',
  'upstream-503': '3s',
}

let gateway: Gateway
let servers: Readonly<Record<string, Awaited<ReturnType<typeof catalogueServer>>>>

const names = await scenarioNames()

before(async (t) => {
  const context = t as Parameters<typeof catalogueServer>[0]
  servers = Object.fromEntries(
    await Promise.all(
      [...names, 'again', 'sick', 'witness'].map(
        async (name) => [name, await catalogueServer(context)] as const,
      ),
    ),
  )
  const entries = Object.entries(servers).map(([name, { url }]) => [
    name,
    { url, era: 'modern', trusted: true },
  ])
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: Object.fromEntries(entries) as Json,
    chaos: { enabled: true, seed: 7 },
  })
  await gateway.waitFor('up', ...Object.keys(servers))
})
after(cleanUp)

/** Runs a scenario with its own traffic against one server; resolves to the exit code and the output. */
async function run(scenario: string, duration: string, server: string, ...more: readonly string[]) {
  const where = ['--control', gateway.control, '--data', gateway.data, '--server', server]
  const args = ['scenario', 'run', scenario, '--duration', duration, ...where, ...more]
  const program = new Program([main, ...args], { env: { BREAKWATER_TOKEN: gateway.token } })
  const { code } = await program.ended
  return { code, said: program.lines.join('\n') }
}

test(
  'every scenario of the package passes all assertions that depend on no clock',
  { concurrency: 6 },
  async (t) => {
    assert.deepEqual(Object.keys(durations).sort(), names)
    await Promise.all([
      ...Object.entries(durations).map(([name, duration]) =>
        t.test(name, async () => {
          const { code, said } = await run(name, duration, name, '--others', 'witness')
          const { all, missed, counted } = assertionsIn(said.split('\n'))
          assert.ok(all >= 3, said)
          assert.deepEqual(counted, [], said)
          assert.equal(code === 0, missed === 0, said)
          assert.ok(servers[name]!.calls().every(({ body }) => body.params?.name === 'look_up'))
        }),
      ),
      t.test('no scenario injects at a server whose calls fail already', async () => {
        const config = { type: 'conn.refused', rate: 1, match: { method: 'tools/call' } }
        const { body } = await gateway.post<{ faultId: string }>('/chaos/inject', { target: 'sick', config })
        const { code, said } = await run('dependency-slow', '1s', 'sick')
        assert.equal(code, 2, said)
        assert.match(
          said,
          // Calls wait at the gate of a server that is lost, so that it may be found either way.
          /INVALID: (nothing is injected, because calls fail already: sick\/look_up ended with BW_|no traffic can be made)/,
        )
        assert.doesNotMatch(said, /^injected /m)
        await gateway.post('/chaos/clear', { faultId: body.faultId })
      }),
    ])
    const { faults } = (await gateway.admin<{ faults: unknown[] }>('/chaos/status')).body
    assert.deepEqual(faults, [], 'a fault stays armed')
    // Calls under way at the end of a run were given up.
    const ended = await gateway.sums('breakwater_tool_calls_total', 'result', 'server="witness"')
    const { returned = 0, cancelled = 0, ...others } = ended
    assert.deepEqual(others, {}, 'no call of a server that is not hit fails')
    assert.ok(returned > 0, JSON.stringify({ returned, cancelled }))
  },
)

const half = `
name: half
description: Half of the calls are late.
assert: { calls: { succeed: { atLeast: 1 } } }
duration: 2s
faults:
  - { name: half, type: conn.latency, rate: 0.5, ttl: 10m, match: { server: $server, method: tools/call }, distribution: { kind: fixed, delay: 1ms } }
`

test('the same scenario hits the same calls when it runs again', async () => {
  type Entry = { kind: string; callKey: string; decision: string }
  type Page = { entries: Entry[]; next: number }
  const journal = async (query: string) => (await gateway.admin<Page>(`/admin/chaos/journal?${query}`)).body
  const file = join(await newFolder(), 'half.yaml')
  await writeFile(file, half)
  const runs: Map<string, string>[] = []
  for (let round = 0; round < 2; round++) {
    const { next } = await journal('limit=1')
    const { code, said } = await run(file, '2s', 'again', '--traffic', '20')
    assert.equal(code, 0, said)
    const { entries } = await journal(`since=${next}&limit=1000`)
    const decisions = entries.filter(({ kind }) => kind === 'decision')
    runs.push(new Map(decisions.map(({ callKey, decision }) => [callKey, decision])))
  }
  const [first = new Map<string, string>(), second = new Map<string, string>()] = runs
  // A run may end one call sooner than the other.
  const common = [...first.keys()].filter((callKey) => second.has(callKey))
  assert.ok(common.length >= 20, `${first.size} and ${second.size} calls`)
  assert.equal(new Set(first.values()).size, 2, 'the fault hits some calls and spares others')
  for (const callKey of common) assert.equal(second.get(callKey), first.get(callKey), callKey)
})

test('a run without calls has no verdict, and a server without a callable tool gets no calls', async () => {
  const idle = await run('upstream-503', '1s', 'again', '--no-traffic')
  assert.equal(idle.code, 2, idle.said)
  assert.match(idle.said, /INVALID: (no agent's call was hit|nothing was injected)/)
  const none = await run('upstream-503', '1s', 'again', '--tool', 'nothing*')
  assert.equal(none.code, 2, none.said)
  assert.match(none.said, /no traffic can be made: no tool of again matches nothing\*/)
  const nowhere = await run('upstream-503', '1s', 'nobody')
  assert.equal(nowhere.code, 2, nowhere.said)
  assert.match(nowhere.said, /no server matches nobody; there are /)
})

test('faults of a killed runner end soon after, without a cleanup', async () => {
  const args = ['scenario', 'run', 'hang', '--no-traffic', '--server', 'again', '--control', gateway.control]
  const program = new Program([main, ...args], { env: { BREAKWATER_TOKEN: gateway.token } })
  await program.line('it is injected', (line) => (line.includes('injected hang') ? true : undefined))
  const armed = async () => (await gateway.admin<{ faults: unknown[] }>('/chaos/status')).body.faults.length
  assert.equal(await armed(), 1)
  await program.kill()
  await until('the lease is over', async () => (await armed()) === 0, 8_000)
})
