import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { fault } from '../rig.ts'
import { decisions, type Manner, PARTS } from './decisions.ts'

/** Every part of the work, done in some manner. */
async function all(manner: Manner = {}): Promise<string[][]> {
  const made: string[][] = []
  for (let part = 0; part < PARTS; part++) made.push(await decisions({ ...manner, part }))
  return made
}

const expected = await all()
const decided = expected.flat()

test('the workload meets enough faults to make the other tests meaningful', () => {
  assert.ok(decided.length > 10_000, `${decided.length} decisions`)
  for (const part of expected) assert.equal(new Set(part).size, part.length)
  for (const name of ['drifting', 'failing', 'lasting', 'seen', 'some-tasks', 'task-bursts', 'call-bursts']) {
    const own = decided.filter((decision) => decision.startsWith(`["${name}"`))
    const hit = own.filter((decision) => decision.includes('"injected"')).length
    assert.ok(hit > 60 && hit < own.length - 60, `${name}: ${hit} of ${own.length}`)
  }
  assert.ok(
    decided.every((decision) => decision.endsWith('false]')),
    'no decision depends on the order',
  )
})

test('decisions and mutations are the same in whatever order the calls come', async () => {
  for (let order = 1; order <= 8; order++) assert.deepEqual(await all({ order }), expected)
})

test('decisions are the same for one call at a time, for 8 and for 64', async () => {
  for (const concurrency of [1, 8, 64])
    assert.deepEqual(await all({ order: concurrency, concurrency }), expected)
})

test('decisions are the same with unrelated faults in the plan', async () => {
  const unrelated = Array.from({ length: 12 }, (_, number) =>
    fault(`other-${number}`, 'test.hold', {
      rate: number % 2,
      holdFor: 1,
      match: { server: number % 3 ? 'z' : '*' },
      side: 'client',
      when: { onCall: 100_000, burst: { meanLength: 2, per: 'call' } },
    }),
  )
  assert.deepEqual(await all({ unrelated, concurrency: 8 }), expected)
})

test('decisions are the same in another process', async () => {
  const script = fileURLToPath(new URL('./fixtures/print-decisions.js', import.meta.url))
  const { stdout } = await promisify(execFile)(process.execPath, [script], { maxBuffer: 64 * 1024 ** 2 })
  assert.deepEqual(JSON.parse(stdout), expected)
})
