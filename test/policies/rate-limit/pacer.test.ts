import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import type { Outcome } from '../../../src/mesh/call.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { type Clock, nextTurn, systemClock } from '../../../src/mesh/clock.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { pacerOn } from '../../../src/policies/rate-limit/pacer.ts'
import { rateLimit } from '../../../src/policies/rate-limit.ts'
import { toolCall } from '../../support/caller.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { until } from '../../support/until.ts'

const answer: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

/** Three bursts with pauses; the queue empties in each pause. */
const CALLS = 300
const BURST_CALLS = 100
const BURST_MS = 3_000

/** Largest difference of a call's starts, in milliseconds: a job of bottleneck passes a few timers of 1 ms. */
const SLACK_MS = 10

const quotas = [
  { calls: 5, per: 1_000, queue: 4, maxWait: 2_000 },
  { calls: 10, per: 505, minTime: 70, queue: 10, maxWait: 600 },
  { calls: 40, per: 410, queue: 30, maxWait: 1_000 },
  { calls: 3, per: 200, queue: 40, maxWait: 900 },
]

/** Sends the same calls at the same times to a separate quota. Returns lists that fill while time passes. */
function arrive(clock: Clock, quota: object) {
  const started: { readonly id: unknown; readonly at: number }[] = []
  const refused: string[] = []
  const service = rateLimit.build(
    rateLimit.schema.parse({ quota }),
    testPolicyContext(clock),
    testScope({ server: 'search' }),
  )(({ id, onSent }) => {
    started.push({ id, at: clock.now() })
    onSent?.()
    return Promise.resolve(answer)
  })
  const send = async (n: number) => {
    const signal = new Cancellation()
    if (n % 7 === 0) clock.after(333, () => signal.abort(gatewayError('cancelled', 'not needed any more')))
    const deadline = n % 5 === 0 && { deadline: { at: clock.now() + 700, reserveMs: undefined } }
    const outcome = await service(toolCall('tool', {}, { id: `call ${n}`, signal, ...deadline }))
    if (outcome.kind === 'answered') return
    // Text without the remaining time, because bottleneck uses up a few milliseconds.
    refused.push(`call ${n}: ${outcome.error.message.replace(/ for \d.*/, '')}`)
  }
  for (let n = 0; n < CALLS; n++)
    clock.after(Math.floor(n / BURST_CALLS) * BURST_MS + ((n * 7) % BURST_CALLS) * 6, () => void send(n))
  return { started, refused }
}

test('bottleneck and the pacer of simulations start the same calls in one order, and reject the same', async () => {
  mock.timers.enable({ apis: ['setTimeout', 'Date'] })
  mock.method(performance, 'now', () => Date.now())
  const all = quotas.map((quota) => {
    const simulated = arrive({ ...systemClock, isReal: false }, quota)
    return { quota, live: arrive(systemClock, quota), simulated }
  })
  for (let passed = 0; passed < (CALLS / BURST_CALLS) * BURST_MS; passed++) {
    mock.timers.tick(1)
    await nextTurn()
  }
  mock.reset()
  const words = all.flatMap(({ live }) => live.refused).join(', ')
  for (const word of ['not needed any more', 'waiting)', 'is used up,']) assert.ok(words.includes(word), word)
  for (const { quota, live, simulated } of all) {
    const { calls, per, minTime = 0 } = quota
    assert.ok(live.started.length > 3 * calls)
    assert.equal(live.started.length + live.refused.length, CALLS)
    assert.deepEqual(live.refused, simulated.refused)
    assert.deepEqual(
      live.started.map(({ id }) => id),
      simulated.started.map(({ id }) => id),
    )
    for (const { started } of [live, simulated])
      for (const [n, { at }] of started.entries()) {
        assert.ok((started[n + calls]?.at ?? Infinity) - at >= per)
        assert.ok((started[n + 1]?.at ?? Infinity) - at >= minTime)
      }
    for (const [n, { at }] of live.started.entries())
      assert.ok(Math.abs(at - simulated.started[n]!.at) <= SLACK_MS, `start ${n}`)
  }
})

test('bottleneck keeps no process alive once it is stopped', async () => {
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length
  const before = timers()
  const pacer = pacerOn(systemClock, 3_600_000)
  let runs = 0
  for (let n = 0; n < 2; n++) void pacer.schedule(() => Promise.resolve(void runs++))
  await until('the second job waits', () => runs === 1 && timers() > before)
  void pacer.stop()
  await until('no timer is left', () => timers() <= before)
  assert.equal(runs, 1)
})
