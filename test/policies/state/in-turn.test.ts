import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { LARGE_TEXT } from '../../../src/mesh/work.ts'
import { inTurn } from '../../../src/policies/state/in-turn.ts'
import { toolCall } from '../../support/caller.ts'

test('no two of many large answers are made in one turn of the event loop', async () => {
  let turn = 0
  let over = false
  const count = () => {
    turn++
    if (!over) setImmediate(count)
  }
  count()
  const call = toolCall('read')
  const turns = await Promise.all(
    Array.from({ length: 20 }, async () => inTurn(LARGE_TEXT, call, () => turn)),
  )
  over = true
  assert.equal(new Set(turns).size, 20)
})

test('a small answer is made at once, and a large one whose call has no time left', () => {
  const signal = new Cancellation()
  signal.abort(new Error('too late'))
  assert.equal(
    inTurn(LARGE_TEXT - 1, toolCall('read'), () => 'small'),
    'small',
  )
  assert.equal(
    inTurn(LARGE_TEXT, { ...toolCall('read'), signal }, () => 'large'),
    'large',
  )
})
