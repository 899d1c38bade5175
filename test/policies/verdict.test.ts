import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../src/mesh/call.ts'
import { pause } from '../../src/mesh/clock.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { isFailure, isIncorrect, resultOf, verdictIn } from '../../src/mesh/classify.ts'
import { verdict } from '../../src/policies/verdict.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { answered, jsonResult, setUp, structured, textResult } from './verdict/judged.ts'

const outputSchema = {
  type: 'object',
  properties: { items: { type: 'array', minItems: 2, items: { $ref: '#/$defs/item' } } },
  required: ['items'],
  $defs: { item: { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] } },
}
const good = structured({ items: [{ id: 'a' }, { id: 'b' }] })
const bad = structured({ items: [{ id: 7 }, { id: 'b' }] })

/** With the schema compiled. */
async function compiled(settings: object = {}, schema: unknown = outputSchema) {
  const parts = setUp(settings, { outputSchema: schema })
  const first = parts.judge(good)
  await pause(0)
  await parts.clock.advance(10)
  await first
  return parts
}

test('a reply that fits its outputSchema is correct, one that does not is invalid', async () => {
  const { verdictOn } = await compiled()
  assert.equal(await verdictOn(good), 'correct')
  assert.equal(await verdictOn(bad), 'schema_invalid')
  assert.equal(await verdictOn(textResult('no structured content at all')), 'schema_invalid')
})

test('until the schema is compiled, off the way of the call, replies stay unchecked', async () => {
  const { clock, judge, verdictOn } = setUp({}, { outputSchema })
  const outcome = await judge(bad)
  assert.equal(outcome.kind === 'answered' && outcome.verdict, 'unchecked')
  assert.equal(clock.pending, 1)
  await clock.advance(0)
  assert.equal(clock.pending, 0)
  assert.equal(await verdictOn(bad), 'schema_invalid')
})

test('a schema is compiled while the server works on the first call, and judges its reply', async () => {
  const { clock, layer } = setUp({}, { outputSchema })
  const judged = layer(() => pause(0).then(() => answered(bad)))(toolCall('tool'))
  await clock.advance(0)
  const outcome = await judged
  assert.equal(outcome.kind === 'answered' && outcome.verdict, 'schema_invalid')
})

test('a schema that changes is compiled anew, and the old one does not judge meanwhile', async () => {
  const { change, clock, verdictOn } = await compiled()
  change({ outputSchema: { type: 'object', required: ['rows'] } })
  assert.equal(await verdictOn(good), 'unchecked')
  await clock.advance(10)
  assert.equal(await verdictOn(good), 'schema_invalid')
  assert.equal(await verdictOn(structured({ rows: [] })), 'correct')
})

test('too few items are reported as the part that is missing', async () => {
  const { judge } = await compiled()
  const outcome = await judge(structured({ items: [{ id: 'a' }] }))
  assert.equal(outcome.kind === 'answered' && outcome.verdict, 'schema_invalid')
  assert.deepEqual(outcome.kind === 'answered' && outcome.partial, {
    source: 'detected',
    reason: 'fewer items than the outputSchema demands',
    missing: ['/items'],
    completeness: 0.5,
    notice: false,
  })
})

test('a reply that official clients reject is invalid, with a schema and without', async () => {
  const malformed: readonly [object, RegExp][] = [
    [{ content: 'nope' }, /\/content: must be a list$/],
    [{ content: [{ type: 'text', text: 'a' }, 'b'] }, /\/content\/1: must be an object with a type$/],
    [{ content: [{ text: 'a' }] }, /\/content\/0: /],
    [{ content: [], isError: 'true' }, /\/isError: must be true or false$/],
  ]
  for (const { judge } of [await compiled({ output: 'enforce' }), setUp({ output: 'enforce' }, {})])
    for (const [result, where] of malformed) {
      const outcome = await judge({ ...good, ...result })
      assert.ok(outcome.kind === 'failed')
      assert.match(outcome.error.message, where)
    }
})

test('a breach is reported with its place, once in a while', async () => {
  const { clock, events, repeat } = await compiled()
  await repeat(50, bad)
  assert.deepEqual(events, [
    {
      type: 'schema_invalid',
      set: 'default',
      server: 'test',
      tool: 'tool',
      detail: { breach: 'the reply breaks the tool’s outputSchema at /items/0/id: must be string' },
    },
  ])
  await clock.advance(10_000)
  await repeat(50, bad)
  assert.equal(events.length, 2)
})

test('when enforced, the first reply waits for the schema to be compiled', async () => {
  const { clock, judge } = setUp({ output: 'enforce' }, { outputSchema })
  const outcome = judge(bad)
  await clock.advance(10)
  assert.equal((await outcome).kind, 'failed')
})

test('when enforced, a reply that breaks its schema becomes a failure that says where', async () => {
  const { judge } = await compiled({ output: 'enforce' })
  const outcome = await judge(bad)
  assert.ok(outcome.kind === 'failed')
  assert.equal(outcome.error.reason, 'incorrect_result')
  assert.equal(outcome.error.sent, true)
  assert.match(outcome.error.message, /outputSchema at \/items\/0\/id: must be string$/)
  assert.equal(isFailure(outcome), true)
  assert.deepEqual([resultOf(outcome), verdictIn(outcome)], ['returned', 'schema_invalid'])
  assert.equal((await judge(good)).kind, 'answered')
})

test('without output checks, schemas are not even compiled', async () => {
  const { clock, verdictOn } = setUp({ output: 'off' }, { outputSchema })
  assert.equal(await verdictOn(bad), 'unchecked')
  assert.equal(clock.pending, 0)
  assert.equal(await verdictOn(jsonResult({})), 'unchecked')
})

test('an unremarkable outcome passes as the same object', async () => {
  const { judgeOutcome } = setUp()
  for (const result of [
    textResult('It is sunny.'),
    { content: [] },
    {},
    { content: [{ type: 'image', data: '' }] },
    jsonResult({ a: 1 }),
  ]) {
    const outcome = answered(result)
    assert.equal(await judgeOutcome(outcome), outcome)
  }
})

test('results that are no answer yet stay unchecked', async () => {
  const { verdictOn } = await compiled()
  assert.equal(await verdictOn({ resultType: 'input_required', inputRequests: {} }), 'unchecked')
  assert.equal(await verdictOn({ task: { taskId: '1', status: 'working' } }), 'unchecked')
  assert.equal(await verdictOn({ ...good, resultType: 'complete' }), 'correct')
})

test('a reply with a verdict, and a failure, pass untouched', async () => {
  const { judgeOutcome, verdictOn } = await compiled()
  assert.equal(await verdictOn({ ...bad, isError: true }), 'tool_error')
  const failed: Outcome = { kind: 'failed', error: gatewayError('bad_reply', 'no JSON') }
  assert.equal(await judgeOutcome(failed), failed)
})

test('requests other than tool calls pass as they are', async () => {
  const layer = verdict.build(verdict.schema.parse({}), testPolicyContext(), testScope({ tool: undefined }))
  const outcome = answered(textResult('{"cut'))
  assert.equal(await layer(() => Promise.resolve(outcome))(newCall({ method: 'prompts/get' })), outcome)
})

test('replies of tools in no catalog are judged, and nothing of them is remembered', async () => {
  const context = testPolicyContext()
  const layer = verdict.build(verdict.schema.parse({}), context, testScope({ tool: undefined }))
  const outcome = await layer(() => Promise.resolve(answered(textResult('{"cut'))))(toolCall('unheard'))
  assert.equal(isIncorrect(outcome), true)
  assert.deepEqual(context.state.list('shape'), [])
})

test('by default every check reports, and no check enforces', () => {
  assert.deepEqual(verdict.schema.parse({}), { output: 'report', shapes: true, partials: true })
  assert.equal(verdict.schema.safeParse({ output: 'strict' }).success, false)
})

test('with every check off, the policy adds no layer', () => {
  const settings = verdict.schema.parse({ output: 'off', shapes: false, partials: false })
  const next = () => Promise.reject(new Error('not called'))
  assert.equal(verdict.build(settings, testPolicyContext(), testScope())(next), next)
})
