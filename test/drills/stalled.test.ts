import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers, RawServer, sendResult } from '../e2e/support/raw-server.ts'
import { stdioToolbox } from '../e2e/support/toolbox.ts'

/** Calls under way per server when the gateway stops: more than enough to open a breaker. */
const CALLS = 10

/** Attempt timeout in milliseconds; the gateway stands still for longer than any attempt has left. */
const TIMEOUT_MS = 10_000
const STALL_MS = TIMEOUT_MS + 1_000

/** Duration of the calls to the process, in milliseconds: they end while the gateway stands still. */
const SLEEP_MS = 4_000

const LARGE = 200_000

after(async () => {
  await cleanUp()
  closeServers()
})

test('a stalled gateway blames no server: answers from meanwhile are delivered, and no gate or breaker opens', async () => {
  const held: { readonly id: unknown; readonly who: unknown; readonly response: ServerResponse }[] = []
  let holds = true
  const answer = ({ id, who, response }: (typeof held)[number]) => {
    // The gateway needs several turns of the event loop to read this reply.
    const more = who === 'call 0' ? [{ type: 'text', text: 'x'.repeat(LARGE) }] : []
    const result = { content: [{ type: 'text', text: who }, ...more] }
    sendResult(response, id, result)
  }
  const server = await RawServer.start(
    ({ message: { id, method, params } }, response) => {
      if (method !== 'tools/call') return false
      const { who } = (params as { arguments: Json }).arguments
      if (holds) held.push({ id, who, response })
      else answer({ id, who, response })
      return true
    },
    ['tell'],
  )
  const gateway = await Gateway.start({
    servers: { remote: { url: server.url, health: { every: '1s' } }, local: stdioToolbox() },
    policies: { defaults: { attemptTimeout: { timeout: TIMEOUT_MS }, retry: false, breaker: {} } },
  })
  await gateway.waitFor('up', 'remote', 'local')
  const [remote, local] = await Promise.all([
    RawClient.open(gateway.mcp('remote')),
    RawClient.open(gateway.mcp('local')),
  ])
  const said = (answer: Promise<string>) => answer.catch((error: Error) => error.message)
  const asked = Array.from({ length: CALLS }, (_, who) => said(remote.say('tell', { who: `call ${who}` })))
  const slept = Array.from({ length: CALLS }, () => said(local.say('sleep', { ms: SLEEP_MS })))
  await until('all calls are at the server', () => held.length === CALLS)
  // No call has ended yet.
  await gateway.waitForCalls(2 * CALLS)

  gateway.program.signal('SIGSTOP')
  const stoppedAt = performance.now()
  holds = false
  for (const one of held) answer(one)
  await until('the limits of the calls have passed', () => performance.now() - stoppedAt > STALL_MS)
  gateway.program.signal('SIGCONT')

  assert.deepEqual(
    await Promise.all(asked),
    asked.map((_, who) => `call ${who}`),
  )
  assert.deepEqual(
    await Promise.all(slept),
    slept.map(() => `slept ${SLEEP_MS} ms`),
  )
  // Sessions, servers, gates and breakers are unchanged.
  assert.equal(await remote.say('tell', { who: 'afterwards' }), 'afterwards')
  assert.equal(await local.say('echo', { text: 'afterwards' }), 'afterwards')
  const { body: breakers } = await gateway.admin<{ state: string }[]>('/admin/breakers')
  assert.deepEqual([...new Set(breakers.map(({ state }) => state))], ['closed'])
  for (const name of ['remote', 'local']) {
    assert.equal((await gateway.server(name))?.state, 'up')
    const ended = await gateway.sums('breakwater_tool_calls_total', 'result', `server="${name}"`)
    assert.deepEqual(ended, { returned: CALLS + 1 })
  }
  const { incidents } = (await gateway.admin<{ incidents: Json[] }>('/admin/incidents')).body
  assert.deepEqual(incidents, [])
  assert.ok(gateway.log.some(({ msg }) => msg === 'the event loop stood still'))
})
