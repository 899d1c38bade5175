import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { isMap, isSeq, parseDocument } from 'yaml'
import { faults } from '../../src/chaos/faults/index.ts'
import { formatIssue } from '../../src/config/issues/issues.ts'
import { loadConfig } from '../../src/config/load.ts'

const loaded = await loadConfig('config/chaos.yaml', {})
assert.ok(loaded.ok, loaded.ok ? '' : loaded.errors.map(formatIssue).join('\n'))
const { chaos, gateway } = loaded.config

test('chaos.yaml has one fault of every kind that there is', () => {
  const shown = chaos.faults.map(({ type }) => type)
  assert.deepEqual([...shown].sort(), Object.keys(faults).sort())
})

test('chaos.yaml shows the example of each type, under what the type says of itself', async () => {
  const list = parseDocument(await readFile('config/chaos.yaml', 'utf8')).getIn(['chaos', 'faults'])
  assert.ok(isSeq(list))
  for (const item of list.items) {
    assert.ok(isMap(item))
    const { type, ...shown } = item.toJSON() as { readonly type: string }
    const { example, seen, containedBy } = faults[type]!
    assert.deepEqual(shown, example, type)
    const by = containedBy.policies.join(', ') || 'no policy'
    const words = `Seen: ${seen} Contained by: ${by}. ${containedBy.how}`
    // The first item's comment stands before the list.
    const comment = item.commentBefore ?? list.commentBefore ?? ''
    assert.ok(comment.replace(/\s+/g, ' ').trim().endsWith(words), type)
  }
})

test('chaos.yaml arms nothing, where something could be armed', () => {
  assert.equal(chaos.enabled, false)
  assert.equal(gateway.environment, 'staging')
})

test('all faults of chaos.yaml are over in time, and none may write', () => {
  for (const { name, ttl, allowWrites } of chaos.faults) assert.ok(ttl <= 600_000 && !allowWrites, name)
})
