import assert from 'node:assert/strict'
import { test } from 'node:test'
import { z } from 'zod'
import { faults } from '../../../src/chaos/faults/index.ts'
import { fieldsOf } from '../../../docs/generate/markdown.ts'
import { policyPages } from '../../../docs/generate/policies.ts'
import { policies } from '../../../src/policies/index.ts'
import { assertCommitted } from './committed.ts'

test('the committed pages of policies are those that the code makes (npm run docs)', () =>
  assertCommitted('policies', policyPages(policies, faults)))

test('every setting of every policy has a description', () => {
  for (const [name, { schema }] of Object.entries(policies)) {
    assert.ok(schema instanceof z.ZodObject, name)
    for (const field of fieldsOf(schema, '')) assert.match(field.about, /\w.*\.$/s, `${name}: ${field.name}`)
  }
})
