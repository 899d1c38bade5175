import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ToolCallRules } from '../../src/upstreams/modern/tool-call-rules.ts'

test('arguments are mirrored in headers, down to a bounded depth of the schema', () => {
  const facts = new ToolCallRules()
  const named = { 'x-mcp-header': 'Region', type: 'string' }
  const deep = JSON.parse(
    `${'{"properties":{"a":'.repeat(30_000)}${JSON.stringify(named)}${'}}'.repeat(30_000)}`,
  ) as object
  const inputSchema = { properties: { where: { properties: { region: named } }, deep } }
  facts.learn({ result: { tools: [{ name: 't', inputSchema }] } })
  assert.deepEqual(facts.headers('t', { where: { region: 'eu' } }), { 'mcp-param-region': 'eu' })
})
