import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'
import { RawClient } from './support/raw-client.ts'

const PARTIAL = 'dev.breakwater/partial'

let second: FlakyServer
let gateway: Gateway

interface Result {
  readonly content: readonly { readonly text: string }[]
  readonly structuredContent?: unknown
  readonly _meta?: Readonly<Record<string, Json>>
}

/** Calls a server's tool on its own endpoint, and on the aggregate. */
type CallBoth = (server: string, tool: string, args?: Json) => Promise<Result[]>

/** Legacy clients begin their sessions while the servers are up. */
const sessions = new Map<string, RawClient>()

const eras: readonly [string, CallBoth][] = [
  [
    '2025',
    async (server, tool, args) => {
      const one = await sessions.get(server)?.call(tool, args)
      const all = await sessions.get('')?.call(`${server}__${tool}`, args)
      return [one?.result as Result, all?.result as Result]
    },
  ],
  [
    '2026',
    async (server, tool, args) => {
      const one = await new ModernClient(gateway.mcp(server)).call(tool, args)
      const all = await new ModernClient(gateway.mcp()).call(`${server}__${tool}`, args)
      return [one, all].map(({ messages }) => messages.at(-1)?.result as Result)
    },
  ],
]

before(async () => {
  const [first, other, quiet] = await Promise.all([
    FlakyServer.start(),
    FlakyServer.start(),
    FlakyServer.start(),
  ])
  second = other
  const degraded = (tool: string, degrade: Json, server = 'first') => ({ match: { server, tool }, degrade })
  gateway = await Gateway.start({
    servers: {
      first: { url: first.url, trusted: true },
      second: { url: second.url, trusted: true },
      quiet: { url: quiet.url, trusted: true },
    },
    policies: {
      // Calls do not wait for the servers killed here.
      defaults: { retry: false, gate: false },
      overrides: [
        degraded('read', { fallback: { server: 'second', tool: 'read' } }),
        degraded('typed', { lastKnownGood: {}, static: { structuredContent: { n: 0 } } }),
        degraded('write', { static: { text: 'Come back tomorrow.' } }),
        degraded('write', { static: { text: 'Come back tomorrow.' }, notice: false }, 'quiet'),
      ],
    },
  })
  await gateway.waitFor('up', 'first', 'second', 'quiet')
  for (const server of ['first', 'quiet']) sessions.set(server, await RawClient.open(gateway.mcp(server)))
  sessions.set('', await RawClient.open(gateway.mcp()))
  for (const [era, call] of eras)
    for (const [tool, words] of [
      ['read', /^read by/],
      ['typed', /"n":1/],
      ['write', /^written/],
    ] as const)
      for (const { content, _meta } of await call('first', tool, { for: era })) {
        assert.match(content[0]?.text ?? '', words)
        assert.deepEqual([content.length, _meta?.[PARTIAL]], [1, undefined])
      }
  for (const { program } of [first, quiet]) {
    program.signal('SIGKILL')
    await program.ended
  }
})
after(cleanUp)

/** Checks that a result is flagged once in each way as a substitute; returns the rest of its text. */
function flagged({ content, _meta }: Result, source: string, reason: RegExp): string {
  const flag = _meta?.[PARTIAL]
  assert.equal(flag?.source, source)
  assert.match(String(flag?.reason), reason)
  assert.equal(content.length, 2)
  assert.equal(content[1]?.text, `[partial result] ${String(flag?.reason)}`)
  return content[0]?.text ?? ''
}

for (const [era, call] of eras) {
  test(`${era}: another server's tool answers for one whose server was killed`, async () => {
    for (const result of await call('first', 'read', { for: era }))
      assert.equal(
        flagged(result, 'fallback', /^answered by second\/read because first\/read failed: /),
        `read by ${second.program.pid}`,
      )
  })

  test(`${era}: the last good answer to the same arguments replaces the failure, and says how old it is`, async () => {
    for (const result of await call('first', 'typed', { for: era })) {
      flagged(result, 'stale', /^this answer is [\d.]+m?s old, because first\/typed failed: /)
      assert.deepEqual(result.structuredContent, { n: 1 })
    }
  })

  test(`${era}: other arguments have no last answer, and get the prepared answer`, async () => {
    for (const result of await call('first', 'typed', { for: era, other: true })) {
      assert.equal(
        flagged(result, 'fallback', /^a prepared answer, because first\/typed failed: /),
        '{"n":0}',
      )
      assert.deepEqual(result.structuredContent, { n: 0 })
    }
  })

  test(`${era}: the operator's text answers for a write`, async () => {
    for (const result of await call('first', 'write'))
      assert.equal(flagged(result, 'fallback', /^a prepared answer/), 'Come back tomorrow.')
  })

  test(`${era}: without a notice only the flag marks the answer`, async () => {
    for (const { content, _meta } of await call('quiet', 'write')) {
      assert.equal(_meta?.[PARTIAL]?.source, 'fallback')
      assert.deepEqual(content, [{ type: 'text', text: 'Come back tomorrow.' }])
    }
  })
}

test('a stale answer is for agents with the same forwarded credentials, whatever token the gateway gets', async () => {
  const server = await FlakyServer.start()
  const own = await Gateway.start({
    servers: {
      flaky: { url: server.url, trusted: true, forwardHeaders: { 'x-user-token': 'authorization' } },
    },
    policies: {
      defaults: { retry: false, gate: false, breaker: false },
      overrides: [{ match: { tool: 'typed' }, degrade: { lastKnownGood: {} } }],
    },
  })
  await own.waitFor('up', 'flaky')
  const open = (user: string, token: string) =>
    RawClient.open(own.mcp('flaky'), { headers: { 'x-user-token': user, authorization: token } })
  const alice = await open('alice', 'Bearer a')
  const [refreshed, bob] = [await open('alice', 'Bearer b'), await open('bob', 'Bearer c')]
  const { structuredContent } = (await alice.call('typed', { for: 'all' })).result as Result
  assert.deepEqual(structuredContent, { n: 1 })
  await server.behave({ typed: { failing: 1 } })
  for (const client of [alice, refreshed]) {
    const stale = (await client.call('typed', { for: 'all' })).result as Result
    flagged(stale, 'stale', /^this answer is .* old, because flaky\/typed failed: /)
    assert.deepEqual(stale.structuredContent, { n: 1 })
  }
  const { error, result } = await bob.call('typed', { for: 'all' })
  assert.equal(result, undefined)
  assert.equal((error as { data: Json }).data.reason, 'upstream_status')
})

test('degraded answers are counted by where they came from', async () => {
  for (const source of ['fallback', 'stale']) {
    const count = await gateway.metric(
      'breakwater_partial_results_total{server="first"',
      `source="${source}"`,
    )
    assert.ok((count ?? 0) >= 4, `${source}: ${count}`)
  }
})
