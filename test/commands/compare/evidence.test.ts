import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { DecisionEntry } from '../../../src/chaos/journal/entry.ts'
import { Decisions, samplesIn } from '../../../src/commands/compare/evidence.ts'
import { csvOf, Room, Samples } from '../../../src/experiments/samples.ts'

test('samples are read back as the gateway writes them, whatever tasks are called', () => {
  const samples = new Samples(new Room())
  const names = ['plain', 'with, comma', 'with "quotes"', 'two\nlines']
  for (const [index, name] of names.entries())
    for (const arm of ['a', 'b']) {
      const sample = samples.begin(`meta tenant\n${name}`, arm, { tenant: '', now: 0 })!
      sample.calls = index + 1
      sample.attempts = 2 * index
    }
  const read = samplesIn([...csvOf(samples.all())].join(''))
  assert.deepEqual([...read.keys()], ['a', 'b'])
  assert.deepEqual(
    [...read.get('b')!],
    names.map((name, index) => [name.replace('\n', '\\u000a'), { calls: index + 1, attempts: 2 * index }]),
  )
  assert.deepEqual([...samplesIn([...csvOf([])].join(''))], [])
})

function entry(more: Partial<DecisionEntry> & { readonly intent?: string } = {}): DecisionEntry {
  const { intent = 'w-1-0', ...rest } = more
  return {
    kind: 'decision',
    seq: 1,
    at: 0,
    fault: 'flaky',
    type: 'rpc.error',
    side: 'upstream',
    callKey: 'key',
    orderDependent: false,
    drawKey: 'key a1',
    u: 0.5,
    rate: 0.05,
    count: 1,
    sinceMs: 0,
    attempt: 1,
    decision: 'not_injected',
    because: 'rate',
    call: { server: 's', method: 'tools/call', tool: 't', id: 1, caller: 'c', intent },
    ...rest,
  }
}

test('decisions on the same attempt of twins are paired; other decisions count for one twin only', () => {
  const decisions = new Decisions('w-1-')
  for (const one of [entry(), entry(), entry({ attempt: 2 }), entry({ callKey: 'other' })])
    decisions.take(one)
  decisions.take(entry({ intent: 'somebody else' }))
  const { first, later } = decisions.report()
  assert.deepEqual(first, { twice: 1, different: 0, once: 1 })
  assert.deepEqual(later, { twice: 0, different: 0, once: 1 })
})

test('decisions that differ are counted, and shown', () => {
  const decisions = new Decisions('w-1-')
  decisions.take(entry())
  decisions.take(entry({ decision: 'injected', because: undefined }))
  const { first, examples } = decisions.report()
  assert.deepEqual(first, { twice: 1, different: 1, once: 0 })
  assert.deepEqual(examples, ['w-1-0 s/t: flaky not_injected (rate), then injected'])
})

test('a journal is followed page by page, and forgotten entries are noticed', async () => {
  const pages: Record<string, unknown>[] = [
    { entries: [entry({ seq: 7 })], next: 7, more: false, oldest: 1 },
    { entries: [entry({ seq: 8 })], next: 8, more: true, oldest: 1 },
    { entries: [entry({ seq: 9 })], next: 9, more: false, oldest: 1 },
    { entries: [], next: 12, more: false, oldest: 11 },
  ]
  const asked: string[] = []
  const control = ({ path }: { readonly path: string }) => {
    asked.push(path.replace('/admin/chaos/journal?', ''))
    return Promise.resolve({ ok: true as const, value: pages.shift() })
  }
  const decisions = new Decisions('w-1-')
  // Decisions before the run belong to no unit.
  await decisions.follow(control)
  assert.deepEqual(decisions.report().first, { twice: 0, different: 0, once: 0 })
  await decisions.follow(control)
  assert.deepEqual(asked, ['limit=1', 'since=7&limit=1000', 'since=8&limit=1000'])
  assert.deepEqual(decisions.report().first, { twice: 1, different: 0, once: 0 })
  assert.equal(decisions.report().isIncomplete, false)
  await decisions.follow(control)
  assert.equal(decisions.report().isIncomplete, true)
})
