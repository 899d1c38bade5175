import assert from 'node:assert/strict'
import { test } from 'node:test'
import { policies } from '../../../src/policies/index.ts'
import { keptSpanOf } from '../../../src/telemetry/tracing/call-trace.ts'
import { createHead, RandomIds } from '../../../src/telemetry/tracing/context.ts'
import { answered, metaOf, retrying, tracedMesh, unavailable } from './traced-mesh.ts'

const unsampled = { config: { sample: 0 } }
const flagsOf = (traceparent: unknown) => String(traceparent).slice(-2)

test('a call that is sampled out and went well sends nothing, and its server hears that', async (t) => {
  const mesh = await tracedMesh(t, unsampled)
  const { call } = await mesh.run()
  assert.deepEqual(await mesh.spans(), [])
  assert.deepEqual(mesh.receiver.paths, [])
  assert.equal(flagsOf(metaOf(mesh.seen[0])?.traceparent), '00')
  assert.equal(call.record.traceId, undefined)
  assert.equal(keptSpanOf(call.record), undefined)
})

test('errors are sent though they were sampled out, with all attempts under the ids that servers know', async (t) => {
  const mesh = await tracedMesh(t, { ...unsampled, settings: retrying, upstream: () => unavailable })
  const { call } = await mesh.run()
  await mesh.spans()
  const [server] = mesh.receiver.of('server')
  const clients = mesh.receiver.of('client')
  assert.equal(server?.attributes['breakwater.kept'], 'error')
  assert.deepEqual(
    clients.map(({ spanId }) => `00-${server?.traceId}-${spanId}-00`),
    mesh.seen.map((seen) => metaOf(seen)?.traceparent),
  )
  assert.equal(call.record.traceId, server?.traceId)
  assert.deepEqual(keptSpanOf(call.record), { traceId: server?.traceId, spanId: server?.spanId })
})

test('a failure that a retry made up for is sent as well', async (t) => {
  const upstream = ({ attempt }: { attempt: number }) => (attempt === 1 ? unavailable : answered())
  const mesh = await tracedMesh(t, { ...unsampled, settings: retrying, upstream })
  await mesh.run()
  await mesh.spans()
  assert.equal(mesh.receiver.of('server')[0]?.attributes['breakwater.kept'], 'error')
})

test('faults, partial results and wrong replies are always sent', async (t) => {
  const partial = { source: 'detected', reason: 'cut', notice: false } as const
  const cases = [
    ['fault', { fault: { attempt: 1, outcome: answered() } }],
    ['partial', { upstream: () => answered({}, { partial }) }],
    ['partial', { upstream: () => answered({}, { verdict: 'partial_silent' }) }],
    ['error', { upstream: () => answered({}, { verdict: 'tool_error' }) }],
    ['error', { upstream: () => answered({}, { verdict: 'json_invalid' }) }],
  ] as const
  for (const [kept, setUp] of cases) {
    const mesh = await tracedMesh(t, { ...unsampled, ...setUp })
    await mesh.run()
    await mesh.spans()
    assert.equal(mesh.receiver.of('server')[0]?.attributes['breakwater.kept'], kept)
  }
})

test('a hedge that lost is no error', async (t) => {
  const mesh = await tracedMesh(t, {
    ...unsampled,
    settings: { hedge: policies.hedge.schema.parse({ after: 20 }) },
    upstream: ({ attempt }) => (attempt === 1 ? new Promise(() => undefined) : answered()),
  })
  await mesh.run()
  assert.deepEqual(await mesh.spans(), [])
  assert.equal(mesh.seen.length, 2)
})

test('the decision of the agent holds, at any rate', async (t) => {
  const parent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}`
  const never = await tracedMesh(t, unsampled)
  await never.run('look', { inbound: { traceparent: `${parent}-01` } })
  assert.equal((await never.spans()).length, 2)
  const always = await tracedMesh(t)
  await always.run('look', { inbound: { traceparent: `${parent}-00` } })
  assert.deepEqual(await always.spans(), [])
})

test('OTEL_TRACES_SAMPLER decides in place of the config', async (t) => {
  const parent = { inbound: { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-00` } }
  const mesh = await tracedMesh(t, { ...unsampled, env: { OTEL_TRACES_SAMPLER: 'always_on' } })
  await mesh.run('look', parent)
  assert.equal((await mesh.spans()).length, 2)
})

test('a rate is the share of traces that are chosen, by their ids alone', () => {
  const ids = new RandomIds()
  const traces = Array.from({ length: 20_000 }, () => ids.trace())
  const head = createHead({ rate: 0.1, parentBased: true })
  const chosen = traces.filter((id) => head(id, undefined))
  // Six standard deviations of a binomial share.
  assert.ok(Math.abs(chosen.length / traces.length - 0.1) < 0.013, String(chosen.length))
  assert.ok(chosen.every((id) => createHead({ rate: 0.5, parentBased: false })(id, undefined)))
  assert.ok(traces.every((id) => createHead({ rate: 1, parentBased: false })(id, undefined)))
  assert.ok(!traces.some((id) => createHead({ rate: 0, parentBased: false })(id, undefined)))
})

test('ids are as the standards have them, and do not repeat', () => {
  const ids = new RandomIds()
  const drawn = Array.from({ length: 5_000 }, () => [ids.span(), ids.trace()] as const)
  assert.equal(new Set(drawn.flat()).size, 10_000)
  assert.ok(drawn.every(([span, trace]) => /^[0-9a-f]{16}$/.test(span) && /^[0-9a-f]{32}$/.test(trace)))
})
