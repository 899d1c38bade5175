import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

let server: FlakyServer
let gateway: Gateway
let client: RawClient

before(async () => {
  server = await FlakyServer.start()
  gateway = await Gateway.start({
    servers: { flaky: { url: server.url, trusted: true }, gone: { url: 'http://127.0.0.1:9/mcp' } },
    policies: {
      // Long enough to look at a call that hangs, even on a busy machine.
      defaults: { attemptTimeout: { timeout: 1_500 }, retry: { base: 1 } },
      overrides: [
        { match: { tool: 'write' }, bulkhead: { concurrent: 1, queue: 0 } },
        { match: { tool: 'read' }, degrade: { static: { text: 'unknown' } } },
        { match: { tool: 'typed' }, retry: { budget: { ratio: 0, floor: 0 } }, breaker: { consecutive: 0 } },
      ],
    },
  })
  await gateway.waitFor('up', 'flaky')
  client = await RawClient.open(gateway.mcp('flaky'))
})
after(cleanUp)

/** Returns the sum of a metric's series with these labels, for the server `flaky`. */
async function value(name: string, labels = ''): Promise<number> {
  const text = await (await fetch(`${gateway.control}/metrics`)).text()
  const rows = text.split('\n').filter((row) => row.startsWith(`breakwater_${name}{`))
  const ours = rows.filter((row) => row.includes('server="flaky"') && row.includes(labels))
  return ours.reduce((sum, row) => sum + Number(row.split(' ').at(-1)), 0)
}

async function assertMoved(name: string, labels = ''): Promise<void> {
  assert.ok((await value(name, labels)) > 0, `${name}{${labels}}`)
}

const reason = ({ error }: Json) => (error as { data: Json } | undefined)?.data.reason

test('successful calls have results and durations', async () => {
  await client.say('read')
  await assertMoved('tool_calls_total', 'result="returned"')
  await assertMoved('tool_call_duration_seconds_count', 'tool="read"')
  await assertMoved('server_up')
  assert.equal(await gateway.metric('breakwater_server_up', 'server="gone"'), 0)
  await assertMoved('retry_budget_balance')
  assert.equal(await gateway.metric('breakwater_sessions'), 1)
})

test("the server's own error reaches the caller", async () => {
  await client.call('made_up')
  await assertMoved('tool_calls_total', 'result="caller_error"')
})

test('arguments and results that break their schema are counted', async () => {
  // Schemas are compiled beside the calls, so the first calls may pass unchecked.
  await until('arguments are checked', async () => {
    await client.call('typed', { n: 'one' })
    return (await value('invalid_arguments_total', 'tool="typed"')) > 0
  })
  await server.behave({ typed: { invalid: 1 } })
  await client.call('typed')
  await assertMoved('upstream_attempts_total', 'verdict="schema_invalid"')
})

test('a read that breaks off is retried, a write is not', async () => {
  await server.behave({ read: { reset: 0.5 }, write: { reset: 1 } })
  for (let n = 0; n < 2; n++) await client.say('read')
  await assertMoved('retries_total', 'decision="sent"')
  await assertMoved('upstream_attempts_total', 'outcome="transport_error"')
  await client.call('write')
  await assertMoved('retries_total', 'decision="unsafe"')

  await server.behave({ read: { failing: 1 } })
  assert.equal(await client.say('read'), 'unknown')
  await assertMoved('partial_results_total', 'source="fallback"')
})

test('a write under a key is answered again from memory', async () => {
  await server.behave({ write: {} })
  const _meta = { 'dev.breakwater/idempotency-key': 'order-1' }
  for (let n = 0; n < 2; n++) await client.request('tools/call', { name: 'write', arguments: {}, _meta })
  await assertMoved('idempotent_replays_total', 'how="stored"')
})

test('a call that hangs is in flight until its timeout, and one that finds no slot is rejected', async () => {
  await server.behave({ write: { hang: true } })
  const hanging = client.call('write')
  await until('the call is under way', async () => (await value('inflight')) === 1)
  assert.equal(reason(await client.call('write')), 'bulkhead_full')
  assert.equal(reason(await hanging), 'attempt_timeout')
  assert.equal(await value('inflight'), 0)
  await assertMoved('rejections_total', 'reason="bulkhead_full"')
  await assertMoved('upstream_attempts_total', 'outcome="timeout"')
})

test('a budget that is used up refuses retries, and a breaker opens on the share of failures', async () => {
  await server.behave({ typed: { failing: 1 } })
  await until('the breaker opens', async () => reason(await client.call('typed')) === 'breaker_open')
  await assertMoved('retries_total', 'decision="server_budget"')
  await assertMoved('breaker_transitions_total', 'dimension="availability"')
  await assertMoved('policy_events_total', 'type="breaker"')
  await assertMoved('rejections_total', 'reason="breaker_open"')
  assert.equal(await value('breaker_state', 'tool="typed",state="open"'), 1)
  assert.equal(await value('breaker_state', 'tool="typed",state="closed"'), 0)
})
