import { test } from 'node:test'
import { refusalOf, serverAddress, type FaultType } from '../../../src/chaos/fault.ts'
import { connectionFaults, halfOpen, latency, reset, slowDrip } from '../../../src/chaos/faults/connection.ts'
import { late, reorder } from '../../../src/chaos/faults/rpc.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { toolCall } from '../../support/caller.ts'
import { answering, testInjection } from '../../support/injection.ts'

import assert from 'node:assert/strict'

const answer = answering({ content: [{ type: 'text', text: 'x'.repeat(2_000) }] })

/** All faults that hold calls, with settings for a long hold. */
const holding: Readonly<Record<string, readonly [FaultType<unknown>, unknown]>> = {
  half_open: [halfOpen, {}],
  latency: [latency, { distribution: { kind: 'fixed', delay: '1m' } }],
  late: [late, {}],
  reorder: [reorder, { maxHold: '1m' }],
}

for (const [name, [fault, config]] of Object.entries(holding)) {
  test(`a thousand calls held by ${name} go on unharmed as soon as the fault ends`, async () => {
    const { calls, outcomes, injection, finished } = await hold(fault, config)
    injection.release()
    await finished
    assert.equal(injection.clock.pending, 0)
    for (const [i, call] of calls.entries()) assert.deepEqual(outcomes[i], await answer(call))
  })

  test(`a thousand calls that ${name} holds are free at once when their callers give up`, async () => {
    const { signal, outcomes, injection, finished } = await hold(fault, config)
    signal.abort(gatewayError('cancelled', 'gone'))
    await finished
    // Late replies arrive when due, unless the fault ends.
    injection.release()
    assert.equal(injection.clock.pending, 0)
    assert.equal(outcomes.length, 1_000)
    assert.ok(outcomes.every((outcome) => outcome.kind === 'failed' && outcome.error.reason === 'cancelled'))
  })
}

/** A thousand calls, each to its own server, so that no call releases another. No call is over yet. */
async function hold(fault: FaultType<unknown>, config: unknown) {
  const injection = testInjection()
  const signal = new Cancellation()
  const service = fault.layer(fault.schema.parse(config), injection)(answer)
  const calls = Array.from({ length: 1_000 }, (_, i) => toolCall('echo', {}, { signal, server: `s${i}` }))
  let over = 0
  const running = calls.map((call) => service(call).finally(() => over++))
  await injection.clock.advance(0)
  assert.equal(over, 0)
  const outcomes: Awaited<(typeof running)[number]>[] = []
  const finished = Promise.all(running).then((all) => void outcomes.push(...all))
  return { injection, signal, calls, outcomes, finished }
}

test('a fault on the bytes of a reply does nothing if the agent already has a part of the reply', async () => {
  for (const [fault, config] of [
    [reset, {}],
    [slowDrip, {}],
  ] as const) {
    const injection = testInjection({ side: 'client' })
    const parsed = (fault as FaultType<unknown>).schema.parse(config)
    const service = (fault as FaultType<unknown>).layer(parsed, injection)(answer)
    const wire = { shape: () => false }
    const begun = { open: () => undefined, pause: () => undefined, send: () => undefined, wire }
    const call = toolCall('echo', {}, { channel: begun })
    assert.deepEqual(await service(call), await answer(call))
    assert.deepEqual(injection.inapplicable, ['the agent has received a part of the reply already'])
  }
})

test('conn.dns does not apply to numeric addresses, and conn.tls does not apply without https', () => {
  const refusals = (type: 'conn.dns' | 'conn.tls') =>
    ['http://127.0.0.1:1/mcp', 'http://[::1]:1/mcp', 'https://a.example/mcp'].map((url) =>
      refusalOf(connectionFaults[type], { transport: 'http', era: undefined, address: serverAddress([url]) }),
    )
  const isNumber = 'the address of the server is a number: there is no name to look up'
  const isPlain = 'the address of the server is no https address'
  assert.deepEqual(refusals('conn.dns'), [isNumber, isNumber, undefined])
  assert.deepEqual(refusals('conn.tls'), [isPlain, isPlain, undefined])
})
