import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { scenarioNames } from '../../src/commands/scenario/library.ts'
import { until } from '../support/until.ts'
import { catalogueServer } from './support/catalogue-server.ts'
import { cleanUp, Gateway, type Json, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'

const main = fileURLToPath(new URL('../../src/main.js', import.meta.url))

interface Verdict {
  /** How long it has to run until all of it has shown. */
  readonly duration: string
  /** What agents get, among other things. */
  readonly endings: readonly string[]
  /** What becomes of its faults, among other things; undefined while calls are held for longer than it runs. */
  readonly fate: 'delayed' | 'surfaced' | 'escaped' | undefined
}

/** What each scenario shows with the default policies, of a server behind HTTP whose tool only reads. */
const verdicts: Readonly<Record<string, Verdict>> = {
  cascading: { duration: '5s', endings: ['result'], fate: 'delayed' },
  'dependency-down': { duration: '3s', endings: ['tool error'], fate: 'surfaced' },
  'dependency-slow': { duration: '5s', endings: ['result'], fate: 'delayed' },
  'dependency-then-outage': {
    duration: '9s',
    endings: ['tool error', 'BW_BREAKER_OPEN'],
    fate: 'surfaced',
  },
  'flapping-server': {
    duration: '13s',
    endings: ['result', 'BW_UPSTREAM_UNAVAILABLE', 'BW_BREAKER_OPEN'],
    fate: 'surfaced',
  },
  hang: { duration: '3s', endings: ['given up at the end'], fate: undefined },
  'head-of-line': { duration: '7s', endings: ['result'], fate: 'delayed' },
  'malformed-replies': { duration: '3s', endings: ['BW_BAD_REPLY', 'BW_BREAKER_OPEN'], fate: 'surfaced' },
  'outage-and-recovery': { duration: '30s', endings: ['BW_BREAKER_OPEN', 'result'], fate: 'surfaced' },
  'rate-limited': { duration: '5s', endings: ['result', 'BW_UPSTREAM_RATE_LIMITED'], fate: 'surfaced' },
  'retry-storm': { duration: '3s', endings: ['BW_BREAKER_OPEN'], fate: 'surfaced' },
  'schema-drift': { duration: '3s', endings: ['result', 'BW_BREAKER_OPEN'], fate: 'escaped' },
  'servers-down': { duration: '3s', endings: ['BW_BREAKER_OPEN'], fate: 'surfaced' },
  'slow-long-tail': { duration: '4s', endings: ['result'], fate: 'delayed' },
  'token-expired': { duration: '13s', endings: ['result', 'BW_UPSTREAM_UNAUTHORIZED'], fate: 'surfaced' },
  'truncated-logs': { duration: '3s', endings: ['result'], fate: 'escaped' },
  'upstream-503': { duration: '3s', endings: ['BW_BREAKER_OPEN'], fate: 'surfaced' },
}

let gateway: Gateway
let servers: Readonly<Record<string, Awaited<ReturnType<typeof catalogueServer>>>>

const names = await scenarioNames()

before(async (t) => {
  const context = t as Parameters<typeof catalogueServer>[0]
  servers = Object.fromEntries(
    await Promise.all(
      [...names, 'again'].map(async (name) => [name, await catalogueServer(context)] as const),
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

/** Runs a scenario against one server, with traffic of its own; resolves to the exit code and all that it said. */
async function run(scenario: string, duration: string, server: string, ...more: readonly string[]) {
  const where = ['--control', gateway.control, '--data', gateway.data, '--server', server]
  const args = ['scenario', 'run', scenario, '--duration', duration, ...where, ...more]
  const program = new Program([main, ...args], { env: { BREAKWATER_TOKEN: gateway.token } })
  const { code } = await program.ended
  return { code, said: program.lines.join('\n') }
}

/** How often each of these words is followed by a number. */
const countOf = (said: string, word: string): number =>
  [...said.matchAll(new RegExp(`\\b${word} (\\d+)`, 'g'))].reduce((sum, [, count]) => sum + Number(count), 0)

test(
  'every scenario that comes with the package says by itself what it has shown',
  { concurrency: 4 },
  async (t) => {
    assert.deepEqual(Object.keys(verdicts).sort(), names)
    await Promise.all(
      Object.entries(verdicts).map(([name, { duration, endings, fate }]) =>
        t.test(name, async () => {
          const { code, said } = await run(name, duration, name, '--traffic', '20')
          assert.equal(code, 0, said)
          for (const ending of endings) assert.ok(countOf(said, ending) > 0, `${ending}: ${said}`)
          assert.ok(countOf(said, 'injected') > 0, said)
          if (fate !== undefined) assert.ok(countOf(said, fate) > 0, said)
          assert.ok(servers[name]!.calls().every(({ body }) => body.params?.name === 'look_up'))
        }),
      ),
    )
  },
)

const half = `
name: half
description: Half of the calls are late.
expect: [Nothing.]
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
  assert.equal(new Set(first.values()).size, 2, 'some are hit, some are not')
  for (const callKey of common) assert.equal(second.get(callKey), first.get(callKey), callKey)
})

test('without traffic there is no verdict, and without a tool that may be called no traffic', async () => {
  const idle = await run('upstream-503', '1s', 'again')
  assert.equal(idle.code, 2, idle.said)
  assert.match(idle.said, /INVALID: no call of an agent was hit/)
  const none = await run('upstream-503', '1s', 'again', '--traffic', '5', '--tool', 'nothing*')
  assert.equal(none.code, 1, none.said)
  assert.match(none.said, /no traffic can be made: no tool of again is called nothing\*/)
  const nowhere = await run('upstream-503', '1s', 'nobody', '--traffic', '5')
  assert.match(nowhere.said, /there is no such server/)
})

test('what a runner that was killed has injected is gone soon after, without anybody clearing it', async () => {
  const args = ['scenario', 'run', 'hang', '--server', 'again', '--control', gateway.control]
  const program = new Program([main, ...args], { env: { BREAKWATER_TOKEN: gateway.token } })
  await program.line('it is injected', (line) => (line.includes('injected hang') ? true : undefined))
  const armed = async () => (await gateway.admin<{ faults: unknown[] }>('/chaos/status')).body.faults.length
  assert.equal(await armed(), 1)
  await program.kill()
  await until('its lease is over', async () => (await armed()) === 0, 8_000)
})
