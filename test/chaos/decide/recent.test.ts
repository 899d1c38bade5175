import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Recent } from '../../../src/chaos/decide/recent.ts'

test('the latest are held, those set longest ago are forgotten, and there is a bound', () => {
  const recent = new Recent<number>(100)
  for (let at = 0; at < 1_000; at++) {
    recent.set('kept', -1)
    recent.set(String(at), at)
    assert.ok(recent.size <= 200)
  }
  for (let at = 910; at < 1_000; at++) assert.equal(recent.get(String(at)), at)
  assert.equal(recent.get('kept'), -1)
  assert.equal(recent.get('700'), undefined)
})
