import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Registry } from 'prom-client'
import { Counter } from '../../../src/telemetry/metrics/instruments.ts'

function setUp() {
  const registry = new Registry()
  const tally = new Counter({ name: 'x_total', help: 'x', labelNames: ['a', 'b'], registers: [registry] })
  const lines = async () =>
    (await registry.metrics()).split('\n').filter((line) => line.startsWith('x_total'))
  return { tally, lines }
}

test('counting by labels and counting in hand give the same result', async () => {
  const { tally, lines } = setUp()
  const cell = tally.series({ a: '1', b: '2' })
  cell.value++
  tally.inc({ a: '1', b: '2' }, 3)
  tally.inc({ b: '3', a: '1' })
  assert.deepEqual(await lines(), ['x_total{a="1",b="2"} 4', 'x_total{a="1",b="3"} 1'])
})

test('reading does not count again, and counting goes on after it', async () => {
  const { tally, lines } = setUp()
  const cell = tally.series({ a: '1', b: '2' })
  cell.value += 5
  await lines()
  assert.deepEqual(await lines(), ['x_total{a="1",b="2"} 5'])
  cell.value++
  assert.deepEqual(await lines(), ['x_total{a="1",b="2"} 6'])
})

test('series are forgotten by their labels', async () => {
  const { tally, lines } = setUp()
  for (const a of ['1', '2']) for (const b of ['1', '2']) tally.inc({ a, b })
  await lines()
  tally.forget(({ b }) => b === '1')
  assert.deepEqual(await lines(), ['x_total{a="1",b="2"} 1', 'x_total{a="2",b="2"} 1'])
  tally.forget(({ a, b }) => a === '1' && b === '1')
  assert.equal(tally.size, 2)
})

test('a counter without labels is there from the beginning, with 0', async () => {
  const registry = new Registry()
  const tally = new Counter<never>({ name: 'y_total', help: 'y', labelNames: [], registers: [registry] })
  assert.match(await registry.metrics(), /^y_total 0$/m)
  tally.inc()
  assert.match(await registry.metrics(), /^y_total 1$/m)
})
