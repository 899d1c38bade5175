import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Catalog, emptyCatalog, fetchList } from '../../src/registry/catalog.ts'
import { knownTools } from '../../src/registry/known-server.ts'
import type { Json } from '../support/memory-pipe.ts'

/** The catalog of a server with these tools. */
async function catalogOf(tools: readonly Json[]): Promise<Catalog> {
  const value = { result: { tools } }
  const list = await fetchList(
    'tools',
    () => Promise.resolve({ text: JSON.stringify(value), value }),
    1024 ** 2,
    'modern',
  )
  return { ...emptyCatalog, lists: { ...emptyCatalog.lists, tools: list.entries } }
}

/** The effect of a tool with these annotations. */
async function effectOf(annotations: unknown): Promise<string | undefined> {
  const tools = knownTools(await catalogOf([{ name: 'a', annotations }]), new Map())
  return tools.get('a')?.annotated
}

test('annotations decide the effect of a tool, the safest annotation first', async () => {
  const effects: readonly [unknown, string][] = [
    [{ readOnlyHint: true }, 'read_only'],
    [{ readOnlyHint: true, idempotentHint: true, destructiveHint: false }, 'read_only'],
    [{ readOnlyHint: false, idempotentHint: true }, 'idempotent'],
    [{ idempotentHint: true }, 'idempotent'],
    [{ readOnlyHint: false }, 'write'],
    [{ readOnlyHint: false, idempotentHint: false }, 'write'],
  ]
  for (const [annotations, effect] of effects)
    assert.equal(await effectOf(annotations), effect, JSON.stringify(annotations))
})

test('a tool that says nothing, or nothing that makes sense, may do anything', async () => {
  for (const annotations of [undefined, null, {}, [], 'read_only', { readOnlyHint: 'true' }, { title: 'x' }])
    assert.equal(await effectOf(annotations), 'unknown', JSON.stringify(annotations))
})

test('a tool whose hints contradict each other, or that is listed twice, may do anything', async () => {
  const annotations = { readOnlyHint: true, destructiveHint: true }
  assert.equal(await effectOf(annotations), 'unknown')
  const reads = { name: 'a', annotations: { readOnlyHint: true } }
  const writes = { name: 'a', annotations: { readOnlyHint: false } }
  const once = knownTools(await catalogOf([reads]), new Map())
  assert.equal(once.get('a')?.annotated, 'read_only')
  for (const tools of [
    [reads, writes],
    [writes, reads],
    [reads, writes, reads],
  ])
    assert.equal(knownTools(await catalogOf(tools), once).get('a')?.annotated, 'unknown')
  assert.equal(knownTools(await catalogOf([reads, reads]), once).get('a')?.annotated, 'read_only')
})

test('a known tool has the schemas and the fingerprint of its entry', async () => {
  const inputSchema = { type: 'object' }
  const outputSchema = { type: 'object', required: ['n'] }
  const catalog = await catalogOf([{ name: 'a', inputSchema, outputSchema }, { name: 'b' }])
  const tools = knownTools(catalog, new Map())
  assert.deepEqual([...tools.keys()], ['a', 'b'])
  assert.deepEqual(tools.get('a')?.inputSchema, inputSchema)
  assert.deepEqual(tools.get('a')?.outputSchema, outputSchema)
  assert.equal(tools.get('a')?.fingerprint, catalog.lists.tools[0]?.fingerprint)
  assert.equal(tools.get('b')?.outputSchema, undefined)
})

test('an unchanged tool stays the same object, a changed tool becomes another object, and a removed tool is gone', async () => {
  const before = knownTools(
    await catalogOf([{ name: 'same' }, { name: 'changed' }, { name: 'gone' }]),
    new Map(),
  )
  const after = knownTools(
    await catalogOf([{ name: 'new' }, { name: 'changed', title: 'x' }, { name: 'same' }]),
    before,
  )
  assert.equal(after.get('same'), before.get('same'))
  assert.notEqual(after.get('changed'), before.get('changed'))
  assert.deepEqual([...after.keys()], ['new', 'changed', 'same'])
})
