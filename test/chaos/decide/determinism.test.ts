import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { fault } from '../rig.ts'
import { decisions } from './decisions.ts'

const expected = await decisions()
const injected = expected.filter((decision) => decision.includes('"injected"'))

test('the work meets enough faults for the others to say something', () => {
  assert.ok(expected.length > 600, `${expected.length} decisions`)
  assert.ok(injected.length > 150, `${injected.length} injected`)
  assert.equal(new Set(expected).size, expected.length)
})

test('decisions and mutations are the same in whatever order the calls come', async () => {
  for (let order = 1; order <= 20; order++) assert.deepEqual(await decisions({ order }), expected)
})

test('they are the same for one call at a time and for 64', async () => {
  for (const order of [1, 2, 3]) assert.deepEqual(await decisions({ order, concurrency: 64 }), expected)
})

test('they are the same with unrelated faults in the plan', async () => {
  const unrelated = Array.from({ length: 20 }, (_, number) =>
    fault(`other-${number}`, 'test.hold', {
      rate: number % 2,
      holdFor: 1,
      match: { server: number % 3 ? 'z' : '*' },
      side: 'client',
      when: { onCall: 100_000 },
    }),
  )
  assert.deepEqual(await decisions({ unrelated, concurrency: 8 }), expected)
})

test('they are the same in another process', async () => {
  const script = fileURLToPath(new URL('./fixtures/print-decisions.js', import.meta.url))
  const { stdout } = await promisify(execFile)(process.execPath, [script], { maxBuffer: 64 * 1024 ** 2 })
  assert.deepEqual(JSON.parse(stdout), expected)
})
