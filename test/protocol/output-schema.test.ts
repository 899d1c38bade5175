import assert from 'node:assert/strict'
import { test } from 'node:test'
import { legacyTool } from '../../src/protocol/output-schema.ts'

function wrapped(outputSchema: Record<string, unknown>): unknown {
  const text = `{"name":"a", "x":1.0,"outputSchema":${JSON.stringify(outputSchema)},"y":12345678901234567890}`
  const legacy = legacyTool(text, { name: 'a', outputSchema })
  assert.ok(legacy.startsWith('{"name":"a", "x":1.0,"outputSchema":{'))
  assert.ok(legacy.endsWith('},"y":12345678901234567890}'))
  return (JSON.parse(legacy) as { outputSchema: unknown }).outputSchema
}

test('a tool that returns objects, or anything, stays unchanged', () => {
  const text = '{"name":"a","outputSchema":{"type":"object"} }'
  assert.equal(legacyTool(text, JSON.parse(text) as Record<string, unknown>), text)
  assert.equal(legacyTool('{"name":"a" }', { name: 'a' }), '{"name":"a" }')
})

test('any other output stands under "result"', () => {
  assert.deepEqual(wrapped({ $schema: 's', type: 'array' }), {
    $schema: 's',
    type: 'object',
    properties: { result: { $schema: 's', type: 'array' } },
    required: ['result'],
  })
})

test('references to the root of a schema follow it, data and names that look like them do not', () => {
  const schema = {
    anyOf: [{ $ref: '#/$defs/a' }, { $ref: '#' }, { $ref: 'other#/x' }, { $ref: '#anchor' }],
    default: { $ref: '#/a' },
    $defs: { default: { $ref: '#/b' }, own: { $id: 'own', $ref: '#/c' }, anchor: { $id: '#d', $ref: '#/d' } },
  }
  const { properties } = wrapped(schema) as { properties: { result: unknown } }
  assert.deepEqual(properties.result, {
    anyOf: [
      { $ref: '#/properties/result/$defs/a' },
      { $ref: '#/properties/result' },
      { $ref: 'other#/x' },
      { $ref: '#anchor' },
    ],
    default: { $ref: '#/a' },
    $defs: {
      default: { $ref: '#/properties/result/b' },
      own: { $id: 'own', $ref: '#/c' },
      anchor: { $id: '#d', $ref: '#/properties/result/d' },
    },
  })
})

test('a schema that is nested deeper than the stack is left out, and the tool stays callable', () => {
  const schema = `${'{"items":'.repeat(30_000)}{}${'}'.repeat(30_000)}`
  const text = `{"name":"deep","outputSchema":${schema}}`
  const tool = JSON.parse(legacyTool(text, JSON.parse(text) as Record<string, unknown>)) as object
  const outputSchema = { type: 'object', properties: { result: {} }, required: ['result'] }
  assert.deepEqual(tool, { name: 'deep', outputSchema })
})
