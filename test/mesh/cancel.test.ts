import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Cancellation } from '../../src/mesh/cancel.ts'

test('an abort tells every listener once, in their order, and keeps its reason', () => {
  const cancellation = new Cancellation()
  const told: string[] = []
  cancellation.addEventListener('abort', () => told.push('first'))
  cancellation.addEventListener('abort', () => told.push('second'))
  assert.equal(cancellation.aborted, false)
  assert.equal(cancellation.reason, undefined)
  cancellation.abort('why')
  cancellation.abort('another reason')
  assert.deepEqual(told, ['first', 'second'])
  assert.equal(cancellation.aborted, true)
  assert.equal(cancellation.reason, 'why')
})

test('many listeners are called like few listeners', () => {
  const cancellation = new Cancellation()
  const told: number[] = []
  const listeners = Array.from({ length: 20 }, (_, index) => () => void told.push(index))
  for (const listener of listeners) cancellation.addEventListener('abort', listener)
  for (const listener of [listeners[0]!, listeners[3]!, listeners[19]!])
    cancellation.removeEventListener('abort', listener)
  cancellation.abort('why')
  assert.deepEqual(told, [1, 2, ...Array.from({ length: 15 }, (_, index) => index + 4)])
})

test('a listener sees the signal as aborted already', () => {
  const cancellation = new Cancellation()
  let seen: unknown
  cancellation.addEventListener('abort', () => (seen = [cancellation.aborted, cancellation.reason]))
  cancellation.abort('why')
  assert.deepEqual(seen, [true, 'why'])
})

test('a listener that was removed is not told, and removing a stranger does nothing', () => {
  const cancellation = new Cancellation()
  const told: string[] = []
  const removed = () => told.push('removed')
  cancellation.addEventListener('abort', removed)
  cancellation.addEventListener('abort', () => told.push('kept'))
  cancellation.removeEventListener('abort', removed)
  cancellation.removeEventListener('abort', () => told.push('kept'))
  cancellation.abort('why')
  assert.deepEqual(told, ['kept'])
})

test('a listener that another one removes in the course of the abort is not told', () => {
  const cancellation = new Cancellation()
  const told: string[] = []
  const second = () => told.push('second')
  cancellation.addEventListener('abort', () => {
    told.push('first')
    cancellation.removeEventListener('abort', second)
  })
  cancellation.addEventListener('abort', second)
  cancellation.abort('why')
  assert.deepEqual(told, ['first'])
})

test('a listener added after the abort is not told', () => {
  const cancellation = new Cancellation()
  cancellation.abort('why')
  cancellation.addEventListener('abort', () => assert.fail('told too late'))
  cancellation.abort('again')
})

test('an abort that a listener sets off again goes no further', () => {
  const cancellation = new Cancellation()
  let told = 0
  cancellation.addEventListener('abort', () => {
    told++
    cancellation.abort('again')
  })
  cancellation.addEventListener('abort', () => told++)
  cancellation.abort('why')
  assert.equal(told, 2)
  assert.equal(cancellation.reason, 'why')
})
