import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createCircuit } from '../../../src/policies/breaker/state-machine.ts'

function setUp(from: 'closed' | 'half_open') {
  const told: string[] = []
  const circuit = createCircuit(from, {
    opened: () => void told.push('opened'),
    closed: () => void told.push('closed'),
  })
  return { told, circuit }
}

test('an open circuit has no timer: only the clock of the mesh decides', (t) => {
  const { mock } = t.mock.method(globalThis, 'setTimeout')
  const { told, circuit } = setUp('closed')
  circuit.open()
  circuit.open()
  assert.deepEqual(told, ['opened'])
  assert.equal(mock.callCount(), 0)
})

test('a half-open circuit closes after a success, and opens after a failure', async () => {
  for (const [failure, expected] of [
    [undefined, 'closed'],
    ['a probe failed', 'opened'],
  ] as const) {
    const { told, circuit } = setUp('half_open')
    const decide = circuit.fire()
    assert.deepEqual(told, [])
    decide(failure)
    await new Promise(setImmediate)
    assert.deepEqual(told, [expected])
  }
})

test('a late decision changes nothing', async () => {
  const { told, circuit } = setUp('half_open')
  const decide = circuit.fire()
  circuit.open()
  decide(undefined)
  await new Promise(setImmediate)
  assert.deepEqual(told, ['opened'])
})
