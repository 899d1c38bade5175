import assert from 'node:assert/strict'
import { test } from 'node:test'
import { derive, type Outcome } from '../../src/mesh/call.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { pause } from '../../src/mesh/clock.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { argumentsPolicy } from '../../src/policies/arguments.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'

const inputSchema = {
  type: 'object',
  properties: { query: { type: 'string' }, limit: { type: 'integer' }, order: { enum: ['up', 'down'] } },
  required: ['query'],
  additionalProperties: false,
}

const passed: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

async function setUp(settings: object, schema: unknown = inputSchema) {
  const clock = new ManualClock()
  const scope = testScope({
    facts: () => ({ inputSchema: schema, outputSchema: undefined, fingerprint: 'a' }),
  })
  const layer = argumentsPolicy.build(argumentsPolicy.schema.parse(settings), testPolicyContext(clock), scope)
  const service = layer(() => Promise.resolve(passed))
  const first = toolCall('tool', { wrong: true })
  let ofFirst: Outcome | undefined
  const answered = service(first).then((outcome) => (ofFirst = outcome))
  await pause(0)
  const beforeCompiled = ofFirst
  await clock.advance(10)
  await answered
  return { clock, service, first, beforeCompiled, ofFirst }
}

test('arguments that do not fit are noted, and the call passes', async () => {
  const { service } = await setUp({})
  const wrong = toolCall('tool', { query: 7 })
  assert.equal(await service(wrong), passed)
  assert.equal(wrong.record.isInvalid, true)
  const right = toolCall('tool', { query: 'x', limit: 3, order: 'up' })
  assert.equal(await service(right), passed)
  assert.equal(right.record.isInvalid, false)
})

test('when enforced, a rejection names up to three places and what was expected, and no values', async () => {
  const { service } = await setUp({ check: 'enforce' })
  const outcome = await service(toolCall('tool', { limit: 'secret', order: 'secret', secretless: 'secret' }))
  assert.ok(outcome.kind === 'rejected')
  assert.equal(outcome.by, 'arguments')
  assert.equal(outcome.error.reason, 'invalid_arguments')
  assert.equal(outcome.error.sent, false)
  assert.equal(
    outcome.error.message,
    'the arguments do not fit the tool’s inputSchema: /query is missing, /secretless is not allowed, ' +
      '/limit must be integer',
  )
})

test('words are those that a model needs: allowed values are listed, the whole is /', async () => {
  const { service } = await setUp({ check: 'enforce' })
  const message = async (args: unknown) => {
    const outcome = await service(
      newCall({ method: 'tools/call', params: { name: 'tool', arguments: args } }),
    )
    return outcome.kind === 'rejected' ? outcome.error.message.split('inputSchema: ')[1] : outcome.kind
  }
  assert.equal(await message({ query: 'x', order: 'sideways' }), '/order must be one of "up", "down"')
  assert.equal(await message([]), '/ must be object')
  assert.equal(await message(undefined), '/query is missing')
  assert.equal(await message({ query: 'x' }), 'answered')
})

test('calls pass until the schema is compiled, but for those that must not go unchecked: these wait for it', async () => {
  const reported = await setUp({})
  assert.equal(reported.beforeCompiled, passed)
  assert.equal(reported.first.record.isInvalid, false)
  const enforced = await setUp({ check: 'enforce' })
  assert.equal(enforced.beforeCompiled, undefined)
  assert.equal(enforced.ofFirst?.kind, 'rejected')
})

test('a call that waits for its schema waits no longer than for its deadline', async () => {
  const clock = new ManualClock()
  const scope = testScope({ facts: () => ({ inputSchema, outputSchema: undefined, fingerprint: 'a' }) })
  const layer = argumentsPolicy.build({ check: 'enforce' }, testPolicyContext(clock), scope)
  const end = new Cancellation()
  let isAborted: boolean | undefined
  const service = layer(({ signal }) => {
    isAborted = signal.aborted
    return Promise.resolve(passed)
  })
  const outcome = service(derive(toolCall('tool', { wrong: true }), { signal: end }))
  end.abort(gatewayError('deadline_exceeded', 'too late'))
  assert.equal(await outcome, passed)
  // Every sender checks this flag first.
  assert.equal(isAborted, true)
})

test('calls pass when the schema cannot be compiled', async () => {
  const { service, ofFirst } = await setUp({ check: 'enforce' }, { type: 'no such type' })
  assert.equal(ofFirst, passed)
  assert.equal(await service(toolCall('tool', { anything: 1 })), passed)
})

test('a text whose pattern is not tried keeps nothing else from being checked', async () => {
  const slug = { type: 'string', pattern: '^[a-z0-9]+(?:-[a-z0-9]+)*$' }
  const mail = { type: 'string', format: 'email' }
  const properties = { amount: { type: 'integer', maximum: 100 }, slug, mail }
  const { service } = await setUp(
    { check: 'enforce' },
    { properties, required: ['amount'], additionalProperties: false },
  )
  for (const args of [
    { slug: 'ok' },
    { amount: 999, slug: 'ok' },
    { amount: 1, slug: 'ok', extra: 1 },
    { amount: 999, mail: 'a'.repeat(20_000) },
  ])
    assert.equal((await service(toolCall('tool', args))).kind, 'rejected', JSON.stringify(args).slice(0, 80))
  assert.equal(await service(toolCall('tool', { amount: 1, slug: 'ok' })), passed)
})

test('other requests and unknown tools pass unchecked', async () => {
  const { service } = await setUp({ check: 'enforce' })
  assert.equal(await service(newCall({ method: 'prompts/get', params: { arguments: {} } })), passed)
  const layer = argumentsPolicy.build(
    { check: 'enforce' },
    testPolicyContext(),
    testScope({ tool: undefined }),
  )
  assert.equal(await layer(() => Promise.resolve(passed))(toolCall('unheard')), passed)
})

test('`off` adds no layer; reporting is the default', () => {
  const next = () => Promise.resolve(passed)
  assert.equal(argumentsPolicy.build({ check: 'off' }, testPolicyContext(), testScope())(next), next)
  assert.deepEqual(argumentsPolicy.schema.parse({}), { check: 'report' })
})

test('names that every object inherits are names like others', async () => {
  const inherited = ['constructor', '__proto__', 'toString', 'hasOwnProperty', 'valueOf', 'prototype']
  const properties = Object.fromEntries(inherited.map((name) => [name, { type: 'string' }]))
  const schema = { type: 'object', properties, additionalProperties: false }
  const { service } = await setUp({ check: 'enforce' }, schema)
  const rejected = async (text: string) => {
    const outcome = await service(toolCall('tool', JSON.parse(text) as Record<string, unknown>))
    return outcome.kind === 'rejected' ? outcome.error.message.replace(/^.*: /, '') : undefined
  }
  assert.equal(await rejected('{}'), undefined)
  assert.equal(await rejected('{"toString":"x"}'), undefined)
  for (const name of inherited) {
    assert.equal(await rejected(`{"${name}":"x"}`), undefined, name)
    assert.equal(await rejected(`{"${name}":1}`), `/${name} must be string`)
  }
  const demanding = await setUp({ check: 'enforce' }, { ...schema, required: inherited })
  const outcome = await demanding.service(toolCall('tool', {}))
  assert.ok(outcome.kind === 'rejected')
  assert.match(
    outcome.error.message,
    /\/constructor is missing, \/__proto__ is missing, \/toString is missing/,
  )
})
