import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, after, describe, test } from 'node:test'
import type { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { LEASE_MS } from '../../src/commands/break/scenario/gateway.ts'
import { parseXml } from '../commands/xml.ts'
import { until } from '../support/until.ts'
import { catalogueServer } from './support/catalogue-server.ts'
import { cleanUp, Gateway, newFolder, type Json } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { closeClients, connect } from './support/sdk-client.ts'
import { HttpToolbox, stdioToolbox } from './support/toolbox.ts'
import { main } from '../support/main.ts'

const token = 'scenario-test-token'

/** Assertions about a server with 503s, all of which fail without policies. */
const everyKind = `
name: mine
description: Every kind of assertion.
assert:
  breaker: { opens: { withinCalls: 5, within: 2s }, closes: { within: 5s } }
  calls: { succeed: { atLeast: 0.5 }, p95: { atLeast: 5s } }
  others: { p95: { atMost: 1ms } }
  errors: { must: [BW_BREAKER_OPEN], may: [BW_BULKHEAD_FULL], never: [BW_UPSTREAM_STATUS] }
  fates: { masked: { atLeast: 1 }, surfaced: none }
  retries: { atLeast: 1 }
  attemptsPerCall: { atMost: 0.5 }
  rejections: { breaker_open: { atLeast: 1 } }
  verdicts: { correct: { atLeast: 10000 } }
  recovery: { firstGood: 1ms, p95: { atMost: 1ms } }
duration: 3s
faults:
  - { name: mine, type: http.status, rate: 1, status: 503, match: { server: $server, method: tools/call }, ttl: 1m, allowWrites: true }
`

/** Starts a gateway before two HTTP servers with a read-only tool. */
async function startCatalogue(t: TestContext, policies: Json = {}) {
  const [first, second] = await Promise.all([catalogueServer(t), catalogueServer(t)])
  const servers = { first, second }
  const gateway = await Gateway.start({
    gateway: { environment: 'test', controlToken: token },
    servers: Object.fromEntries(
      Object.entries(servers).map(([name, { url }]) => [name, { url, era: 'modern', trusted: true }]),
    ),
    policies,
    chaos: { enabled: true, seed: 7 },
  })
  await gateway.waitFor('up', 'first', 'second')
  return gateway
}

/** Starts a gateway before a toolbox; the control port may switch on faults. */
async function startGateway(chaos: Json = { enabled: true }, servers?: Json) {
  const mcpServers = servers ?? { toolbox: { url: (await HttpToolbox.start()).url } }
  const file = join(await newFolder(), 'gateway.yaml')
  const gateway = {
    listen: '127.0.0.1:0',
    control: '127.0.0.1:0',
    controlToken: token,
    environment: 'test',
  }
  await writeFile(file, JSON.stringify({ gateway, mcpServers, chaos }))
  const program = new Program([main, 'start', '--config', file])
  const addresses = await program.line('the gateway listens', (line) =>
    line.includes('"listening"') ? (JSON.parse(line) as { data: string; control: string }) : undefined,
  )
  return { ...addresses, client: await connect(`${addresses.data}/mcp/toolbox`) }
}

const run = (control: string, ...args: readonly string[]) =>
  new Program([main, 'scenario', 'run', ...args, '--control', control], { env: { BREAKWATER_TOKEN: token } })

async function traffic(client: Client, program: Program): Promise<void> {
  while (program.isRunning)
    await client.callTool({ name: 'echo', arguments: { text: 'hi' } }).catch(() => undefined)
}

async function activeFaults(control: string): Promise<unknown[]> {
  const response = await fetch(`${control}/chaos/status`, { headers: { authorization: `Bearer ${token}` } })
  return ((await response.json()) as { faults: unknown[] }).faults
}

after(async () => {
  await closeClients()
  await cleanUp()
})

// Concurrent, because the tests mostly wait and share no state.
describe('runs of scenarios', { concurrency: 4 }, () => {
  test('a scenario without traffic judges counts of the calls of others, and leaves nothing behind', async () => {
    const { control, client } = await startGateway()
    const program = run(control, 'upstream-503', '--duration', '2s', '--server', 'tool*', '--no-traffic')
    await traffic(client, program)
    const { code } = await program.ended
    const said = program.lines.join('\n')
    assert.match(
      said,
      /upstream-503 .*http\.status .*injected [1-9]\d*, masked \d+, delayed \d+, surfaced [1-9]\d*, escaped 0, not reached 0/,
    )
    assert.match(said, /retry: the budget bounds the additional attempts/)
    assert.match(said, /^pass {2}faults escaped: none: 0$/m)
    assert.match(
      said,
      /^\?{4} {2}share of calls that succeed: at least 0\.75: not decided: the run made no calls/m,
    )
    assert.equal(code, 2, said)
    assert.match(said, /^upstream-503: undecided, /m)
    assert.deepEqual(await activeFaults(control), [])
  })

  test('a run without traffic is invalid, and so is one that is interrupted; both clear their faults', async () => {
    const { control } = await startGateway()
    const idle = run(control, 'slow-long-tail', '--duration', '1s', '--no-traffic')
    assert.equal((await idle.ended).code, 2)
    assert.match(idle.lines.join('\n'), /INVALID: nothing was injected/)
    assert.deepEqual(await activeFaults(control), [])

    const interrupted = run(control, 'cascading', '--duration', '60s', '--no-traffic')
    await interrupted.line('all is injected', (line) =>
      line.includes('cascading-3-hang') ? true : undefined,
    )
    assert.equal((await activeFaults(control)).length, 3)
    interrupted.signal('SIGINT')
    interrupted.signal('SIGINT')
    assert.equal((await interrupted.ended).code, 2)
    assert.match(interrupted.lines.join('\n'), /INVALID: it was stopped early/)
    assert.deepEqual(await activeFaults(control), [])
  })

  test('a run that is interrupted while it waits for its calls, or for the next scenario, injects nothing more', async (t) => {
    const { control, data } = await startCatalogue(t)
    const file = join(await newFolder(), 'report.xml')
    const args = ['dependency-down', 'dependency-slow', '--data', data, '--junit', file]
    const program = run(control, ...args)
    await program.line('it is injected', (line) => (line.startsWith('injected ') ? true : undefined))
    program.signal('SIGINT')
    assert.equal((await program.ended).code, 2)
    assert.deepEqual(await activeFaults(control), [])
    const [first, second] = parseXml(await readFile(file, 'utf8')).children
    const said = (suite: typeof first) => suite?.children[1]?.children[0]?.attributes.message
    assert.equal(said(first), 'it was stopped early')
    assert.equal(said(second), 'it was not run: the command was stopped')
  })

  test('at the data port of another gateway nothing is called, and nothing is injected', async (t) => {
    const [one, other] = await Promise.all([startCatalogue(t), startCatalogue(t)])
    const program = run(one.control, 'upstream-503', '--data', other.data)
    assert.equal((await program.ended).code, 2)
    assert.match(program.lines.join('\n'), /is the data port of another gateway: nothing is called there/)
    assert.deepEqual(await activeFaults(one.control), [])
    assert.equal(await other.metric('breakwater_tool_calls_total'), undefined)
    assert.equal((await other.admin<{ open: number }>('/admin/sessions')).body.open, 0)
  })

  test('a run reports a gateway that ends meanwhile, in the report file as well', async (t) => {
    const { control, data, program: gateway } = await startCatalogue(t)
    const file = join(await newFolder(), 'report.xml')
    const program = run(control, 'dependency-down', '--data', data, '--junit', file)
    await program.line('it is injected', (line) => (line.startsWith('injected ') ? true : undefined))
    await gateway.kill()
    assert.equal((await program.ended).code, 2)
    assert.match(program.lines.join('\n'), /INVALID: nothing listens at /)
    const [suite] = parseXml(await readFile(file, 'utf8')).children
    assert.equal(suite?.attributes.errors, '1')
  })

  test('a scenario fails without its policies, and prints the measured values', async (t) => {
    const policies = { defaults: { breaker: false, retry: false, bulkhead: false } }
    const { control, data } = await startCatalogue(t, policies)
    const folder = await newFolder()
    const mine = join(folder, 'mine.yaml')
    await writeFile(mine, everyKind)
    const file = join(folder, 'report.xml')
    const program = run(
      control,
      mine,
      'outage-and-recovery',
      '--duration',
      '3s',
      '--data',
      data,
      '--junit',
      file,
    )
    const { code } = await program.ended
    const said = program.lines.join('\n')
    assert.equal(code, 1, said)
    const failed = program.lines.filter((line) => line.startsWith('FAIL  ')).map((line) => line.slice(6))
    for (const [index, pattern] of [
      /^breaker opens within 5 calls of a tool: first\/look_up is not stopped after \d+ calls$/,
      /^breaker opens within 2s: none opened$/,
      /^breakers are closed again within 5s of the faults' end: none was seen open$/,
      /^share of calls that succeed: at least 0\.5: 0$/,
      /^p95 of calls: at least 5s: \d/,
      /^other servers, p95 of calls: at most 1ms: \d/,
      /^agents see BW_BREAKER_OPEN: 0 times$/,
      /^agents never see BW_UPSTREAM_STATUS: \d+ times$/,
      /^agents see no errors but BW_BREAKER_OPEN, BW_BULKHEAD_FULL: BW_UPSTREAM_STATUS$/,
      /^faults masked: at least 1: 0$/,
      /^faults surfaced: none: \d+$/,
      /^calls sent again: at least 1: 0$/,
      /^attempts per call: at most 0\.5: [\d.]+$/,
      /^calls rejected as breaker_open: at least 1: 0$/,
      /^replies judged correct: at least 10000: \d+$/,
      /^first good answer within 1ms of the faults' end: \d/,
      /^p95 of calls after the recovery: at most 1ms: \d/,
      // From the library's scenario.
      /^share of calls that succeed: at least 0\.9: 0$/,
    ].entries())
      assert.match(failed[index] ?? '', pattern, said)
    assert.equal(failed.length, 18, said)
    assert.match(said, /^2 scenarios: 2 failed$/m)
    const suites = parseXml(await readFile(file, 'utf8'))
    assert.equal(suites.attributes.failures, '18')
    assert.deepEqual(
      suites.children.map(({ attributes }) => [attributes.name, attributes.failures]),
      [
        ['mine', '17'],
        ['outage-and-recovery', '1'],
      ],
    )
  })

  test('a run of all scenarios skips those its servers cannot show; such a scenario by name is invalid', async () => {
    const { control, data } = await startGateway({ enabled: true }, { toolbox: stdioToolbox() })
    const named = run(control, 'upstream-503', '--data', data, '--json')
    const { code } = await named.ended
    assert.equal(code, 2)
    const { scenarios, exitCode } = JSON.parse(
      named.lines.filter((line) => !line.startsWith('breakwater: ')).join('\n'),
    ) as {
      scenarios: { scenario: string; status: string; flaws: string[] }[]
      exitCode: number
    }
    assert.equal(exitCode, 2)
    assert.deepEqual(
      scenarios.map(({ scenario, status, flaws }) => [scenario, status, flaws]),
      [['upstream-503', 'invalid', ['it needs a server over http or sse; toolbox is not']]],
    )
  })

  test('a run reports refusals of the gateway, and does not succeed', async () => {
    const { control } = await startGateway({ enabled: false })
    const refused = run(control, 'hang', '--no-traffic')
    assert.equal((await refused.ended).code, 2)
    assert.match(refused.lines.join('\n'), /refused: chaos\.enabled is false/)

    const stranger = run(control, 'hang', '--no-traffic', '--token', 'some-other-token')
    assert.equal((await stranger.ended).code, 2)
    assert.match(stranger.lines.join('\n'), /token/)
  })

  test('the faults of a run that is killed end with its lease, and the calls that they hold go on', async (context) => {
    const { control, client } = await startGateway()
    const runner = run(control, 'cascading', '--duration', '60s', '--allow-writes', '--no-traffic')
    await runner.line('all is injected', (line) => (line.includes('cascading-3-hang') ? true : undefined))
    const asking = traffic(client, runner)
    assert.equal((await activeFaults(control)).length, 3)
    // The fault outlives its lease, which is renewed meanwhile.
    await runner.line('it is under way', (line) => (line.includes(' left; injected: ') ? true : undefined))
    assert.equal((await activeFaults(control)).length, 3)
    runner.signal('SIGKILL')
    await runner.ended
    const killedAt = performance.now()
    await until('no fault is armed', async () => (await activeFaults(control)).length === 0)
    const tookMs = performance.now() - killedAt
    await asking
    context.diagnostic(`nothing is armed ${tookMs.toFixed(0)} ms after kill -9; the lease is ${LEASE_MS} ms`)
    const journal = await fetch(`${control}/admin/chaos/journal?limit=1000`, {
      headers: { authorization: `Bearer ${token}` },
    })
    const { entries } = (await journal.json()) as { entries: { type: string; by?: string; at: number }[] }
    const ended = entries.filter(({ type }) => type === 'cleared')
    assert.deepEqual(
      ended.map(({ by }) => by),
      ['lease', 'lease', 'lease'],
      'the leases ended the faults, not their durations',
    )
  })
})
