import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Registry } from 'prom-client'
import { Gauge } from '../../../src/telemetry/metrics/instruments.ts'

function setUp() {
  const registry = new Registry()
  const level = new Gauge({ name: 'x', help: 'x', labelNames: ['a', 'b'], registers: [registry] })
  const lines = async () => (await registry.metrics()).split('\n').filter((line) => line.startsWith('x'))
  return { level, lines }
}

test('a set replaces the value, and an add adds up', async () => {
  const { level, lines } = setUp()
  level.set({ a: '1', b: '2' }, 5)
  level.set({ b: '2', a: '1' }, 3)
  level.inc({ a: '1', b: '2' }, -1)
  assert.deepEqual(await lines(), ['x{a="1",b="2"} 2'])
})

test('after a reset, series that are set again begin at 0, and the others are gone', async () => {
  const { level, lines } = setUp()
  for (const a of ['1', '2', '3']) level.set({ a, b: 'x' }, 7)
  level.reset()
  level.inc({ a: '3', b: 'x' }, 2)
  level.inc({ a: '1', b: 'x' }, 0)
  assert.deepEqual(await lines(), ['x{a="3",b="x"} 2', 'x{a="1",b="x"} 0'])
  assert.deepEqual([...level.written()], ['x{a="3",b="x"} 2\n', 'x{a="1",b="x"} 0\n'])
})

test('a series gone at one reset is not remembered at the next', async () => {
  const { level, lines } = setUp()
  const labels = { a: '1', b: 'x' }
  const cell = level.series(labels)
  level.reset()
  assert.equal(level.series(labels), cell)
  level.reset()
  level.reset()
  assert.deepEqual([await lines(), level.size], [[], 0])
  assert.notEqual(level.series(labels), cell)
})

test('a gauge without labels is there from the beginning, with 0', async () => {
  const registry = new Registry()
  const level = new Gauge<never>({ name: 'y', help: 'y', labelNames: [], registers: [registry] })
  assert.match(await registry.metrics(), /^y 0$/m)
  level.set(-2.5)
  assert.match(await registry.metrics(), /^y -2\.5$/m)
})
