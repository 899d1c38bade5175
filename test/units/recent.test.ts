import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Recent } from '../../src/units/recent.ts'

test('the latest are held, those set longest ago are forgotten, and there is a bound', () => {
  const recent = new Recent<number>(100)
  for (let at = 0; at < 1_000; at++) {
    recent.set('kept', -1)
    recent.set(String(at), at)
    assert.ok(recent.size <= 100)
  }
  for (let at = 901; at < 1_000; at++) assert.equal(recent.peek(String(at)), at)
  assert.equal(recent.peek('kept'), -1)
  assert.equal(recent.peek('900'), undefined)
})

test('a lookup does not delay forgetting', () => {
  const recent = new Recent<number>(2)
  recent.set('first', 1)
  recent.set('second', 2)
  assert.equal(recent.peek('first'), 1)
  recent.set('third', 3)
  assert.equal(recent.peek('first'), undefined)
  assert.equal(recent.peek('second'), 2)
})

test('the oldest entries are forgotten up to the first entry to keep', () => {
  const recent = new Recent<number>(10)
  for (const [at, name] of ['a', 'b', 'c', 'd'].entries()) recent.set(name, at)
  recent.get('a')
  recent.forgetWhile((value) => value < 3)
  assert.deepEqual([...recent.rkeys()], ['d', 'a'])
  recent.forgetWhile(() => true)
  assert.equal(recent.size, 0)
})
