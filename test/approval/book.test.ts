import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Book } from '../../src/approval/book.ts'

const identity = 'a'.repeat(64)
const fault = 'f'.repeat(64)

const spent = { kind: 'spent', at: 1, proposal: 'p-1', by: 'writer', run: 'run-1', nonce: undefined } as const
const over = (share: number) =>
  ({ kind: 'over', at: 2, run: 'run-1', state: 'completed', reached: [{ identity, fault, share }] }) as const

for (const envelope of [undefined, 'env-test'])
  test(`the end of a run ${envelope === undefined ? 'that a person approved' : 'in an envelope'} counts once`, () => {
    const book = new Book()
    book.add({ ...over(0.9), envelope })
    assert.equal(book.completedShare(identity, fault, 3), 0, 'a run without a begin')
    book.add({ ...spent, envelope })
    book.add({ ...over(0.1), envelope })
    book.add({ ...over(0.5), envelope })
    assert.equal(book.completedShare(identity, fault, 3), 0.1)
    assert.deepEqual(book.openRuns, [])
  })
