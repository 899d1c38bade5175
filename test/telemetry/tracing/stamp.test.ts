import { ROOT_CONTEXT } from '@opentelemetry/api'
import { tracing } from '@opentelemetry/sdk-node'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CallTrace, callTrace, stamped, stampHeaders } from '../../../src/telemetry/tracing/call-trace.ts'
import { readParent } from '../../../src/protocol/task.ts'
import { createHead, RandomIds } from '../../../src/telemetry/tracing/context.ts'
import { newCall } from '../../support/caller.ts'

const TRACE = 'a'.repeat(32)
const SPAN = 'b'.repeat(16)
const traceparent = `00-${TRACE}-${SPAN}-01`

/** A call with this text on its way to the server; `state` is the agent's `tracestate`. */
function onItsWay(text: string, state?: string) {
  const call = newCall({ method: 'tools/call', text })
  const parent = state === undefined ? undefined : { traceId: TRACE, spanId: SPAN, sampled: true, state }
  const trace = new CallTrace(TRACE, parent, true)
  callTrace.note(call.record, trace)
  return { ...call, headers: stampHeaders(call.headers, trace, SPAN) }
}

const request = (params: string) => `{"jsonrpc":"2.0","id":1,"method":"tools/call"${params}}`

test('a server finds the stamp in _meta, and every other byte as the agent wrote it', () => {
  const meta = `"_meta":{"traceparent":"${traceparent}"}`
  const cases = [
    [', "params": { "a":1.0 }', `, "params": {${meta}, "a":1.0 }`],
    [',"params":{}', `,"params":{${meta}}`],
    [',"params":{ }', `,"params":{${meta} }`],
    [`,"params":{"_meta":{"traceparent":"old"},"a":1E2}`, `,"params":{${meta},"a":1E2}`],
    [
      ',"params":{"a":1.0,"_meta":{"b":1.0}}',
      `,"params":{"a":1.0,"_meta":{"traceparent":"${traceparent}","b":1.0}}`,
    ],
    [',"params":{"_meta":7}', `,"params":{${meta}}`],
  ] as const
  for (const [given, expected] of cases) {
    const { message } = stamped(onItsWay(request(given)))
    assert.equal(message.text, request(expected))
    assert.deepEqual(JSON.parse(message.text), message.value)
  }
})

test('a request without params gets some', () => {
  const { message } = stamped(onItsWay(request('')))
  assert.deepEqual(JSON.parse(message.text).params, { _meta: { traceparent } })
  assert.deepEqual(JSON.parse(message.text), message.value)
})

test('the trace state of the agent is passed on', () => {
  const call = onItsWay(request(',"params":{"_meta":{"tracestate":"old=1"}}'), 'agent=1')
  assert.deepEqual(JSON.parse(stamped(call).message.text).params._meta, {
    traceparent,
    tracestate: 'agent=1',
  })
})

test('a state that belongs to no parent of ours is not sent as a header', () => {
  const trace = new CallTrace(TRACE, undefined, false)
  const headers = stampHeaders({ tracestate: 'proxy=1', 'x-other': '1' }, trace, SPAN)
  assert.deepEqual(headers, { 'x-other': '1', traceparent: `00-${TRACE}-${SPAN}-00` })
})

test('a call that is not traced stays the very same', () => {
  const call = { ...newCall({ method: 'tools/call' }), headers: { traceparent } }
  assert.equal(stamped(call), call)
})

test('a parent is read as W3C Trace Context defines it', () => {
  const parent = { traceId: TRACE, spanId: SPAN, sampled: true, state: undefined }
  assert.deepEqual(readParent(traceparent, undefined), parent)
  assert.deepEqual(readParent(`cc-${TRACE}-${SPAN}-09-more`, undefined), parent)
  assert.deepEqual(readParent(`00-${TRACE}-${SPAN}-02`, 'a=b'), { ...parent, sampled: false, state: 'a=b' })
  const none = [
    `${traceparent}-more`,
    `ff-${TRACE}-${SPAN}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${TRACE}-${'0'.repeat(16)}-01`,
    `00-${TRACE}-${SPAN}`,
    `cc-${TRACE}-${SPAN}-01-${'x'.repeat(300)}`,
    [traceparent],
    undefined,
  ]
  for (const given of none) assert.equal(readParent(given, undefined), undefined)
})

test('a state that could end a header is dropped', () => {
  for (const state of ['a=b\r\nx: y', 'ä=1', '', 'x'.repeat(513), 7])
    assert.equal(readParent(traceparent, state)?.state, undefined)
})

test("head sampling chooses the very traces that OpenTelemetry's sampler chooses", () => {
  const ids = new RandomIds()
  for (const rate of [0.01, 0.3, 0.9]) {
    const head = createHead({ rate, parentBased: true })
    const sampler = new tracing.TraceIdRatioBasedSampler(rate)
    for (let i = 0; i < 500; i++) {
      const id = ids.trace()
      const { decision } = sampler.shouldSample(ROOT_CONTEXT, id)
      assert.equal(head(id, undefined), decision === tracing.SamplingDecision.RECORD_AND_SAMPLED)
    }
  }
})
