import assert from 'node:assert/strict'
import { test } from 'node:test'
import { z } from 'zod'
import { eras, type ForeignFormat, refusalOf, transports } from '../../../src/chaos/fault.ts'
import { faultPages } from '../../../docs/generate/faults.ts'
import { fieldsOf } from '../../../docs/generate/markdown.ts'
import { faults } from '../../../src/chaos/faults/index.ts'
import { driftOperators, partialOperators } from '../../../src/chaos/operators/index.ts'
import { chaosMonkeyTypes } from '../../../src/chaos/plan/compat/chaos-monkey.ts'
import { fromChaosMonkey, fromMcpChaos } from '../../../src/chaos/plan/compat/index.ts'
import { mcpChaosTypes } from '../../../src/chaos/plan/compat/mcp-chaos.ts'
import { faultSchema } from '../../../src/chaos/plan/schema.ts'
import { policies } from '../../../src/policies/index.ts'
import { assertCommitted } from './committed.ts'

const types = Object.entries(faults)

test('the committed pages of faults are those that the code makes (npm run docs)', () =>
  assertCommitted('faults', faultPages(faults)))

test('every field of every type and operator has a description', () => {
  const schemas = [
    ...types.map(([name, { schema }]) => [name, schema] as const),
    ...Object.entries({ ...driftOperators, ...partialOperators }).map(
      ([op, { schema }]) => [op, schema] as const,
    ),
  ]
  for (const [name, schema] of schemas) {
    assert.ok(schema instanceof z.ZodObject, name)
    for (const field of fieldsOf(schema, '')) assert.match(field.about, /\w.*\.$/, `${name}: ${field.name}`)
  }
})

test('descriptions of a type are sentences', () => {
  for (const [name, { about, use, seen, containedBy }] of types)
    for (const words of [about, use, seen, containedBy.how]) assert.match(words, /^\S.*\.$/, name)
})

test('no two types share a description, and no two examples share a name', () => {
  for (const words of [types.map(([, { about }]) => about), types.map(([, { example }]) => example.name)])
    assert.equal(new Set(words).size, types.length)
})

test('the example of each type is valid in a plan', () => {
  const schema = faultSchema()
  for (const [type, { example }] of types) assert.ok(schema.safeParse({ type, ...example }).success, type)
})

test('the policies said to contain a fault exist', () => {
  for (const [name, { containedBy }] of types)
    for (const policy of containedBy.policies) assert.ok(policy in policies, `${name}: ${policy}`)
})

test('each type works on some side, and with some server', () => {
  for (const [name, type] of types) {
    assert.ok(type.sides.length > 0, name)
    const kinds = transports.flatMap((transport) => eras.map((era) => ({ transport, era })))
    assert.ok(
      kinds.some((kind) => refusalOf(type, kind) === undefined),
      name,
    )
    for (const { only } of [type.transports, type.eras].filter((limit) => limit !== undefined))
      assert.ok(only.length > 0, name)
  }
})

test('a server whose era nobody knows yet is refused for its transport only', () => {
  const { 'session.lost': lost } = faults
  assert.equal(refusalOf(lost!, { transport: 'http', era: undefined }), undefined)
  assert.equal(refusalOf(lost!, { transport: 'http', era: 'modern' }), 'the modern era has no sessions')
  assert.equal(refusalOf(lost!, { transport: 'sse', era: undefined }), 'there is no session to lose over sse')
})

/** Entries of each type of the other formats; several entries where their fields decide the type of ours. */
const foreign: Readonly<
  Record<ForeignFormat, readonly (Readonly<Record<string, unknown>> & { type: string })[]>
> = {
  'mcp-chaos': mcpChaosTypes.map((type) => (type === 'latency' ? { type } : { type, tools: ['a'] })),
  'chaos-monkey': [
    { type: 'latency', delayMs: 5 },
    { type: 'error', statusCode: 503 },
    { type: 'timeout', hangMs: 5 },
    { type: 'malformed' },
    { type: 'connection-refused' },
    { type: 'connection-drop' },
    { type: 'rate-limit', retryAfterSeconds: 1 },
    { type: 'schema-mismatch', missingFields: ['a'] },
  ],
}

test('the other formats of plans mean the types that say so, and no others', () => {
  const options = { ttl: '15m' }
  const meant = (format: ForeignFormat, entry: object) =>
    format === 'mcp-chaos'
      ? fromMcpChaos({ faults: [entry] }, options).faults
      : fromChaosMonkey([entry], options)
  const told = new Set(
    (Object.keys(foreign) as ForeignFormat[]).flatMap((format) =>
      foreign[format].flatMap((entry) =>
        meant(format, entry).map(({ type }) => `${format} ${entry.type} ${type}`),
      ),
    ),
  )
  const said = types.flatMap(([name, { aliases = {} }]) =>
    Object.entries(aliases).flatMap(([format, names]) => names.map((alias) => `${format} ${alias} ${name}`)),
  )
  assert.deepEqual([...told].sort(), said.sort())
  const named = new Set(foreign['chaos-monkey'].map(({ type }) => type))
  assert.deepEqual([...named].sort(), [...chaosMonkeyTypes].sort())
})
