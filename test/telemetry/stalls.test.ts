import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { during, works, type Work } from '../../src/mesh/work.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { watchStalls } from '../../src/telemetry/stalls.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** A clock whose time passes during work, too. */
class BusyClock extends ManualClock {
  busyMs = 0

  override now(): number {
    return super.now() + this.busyMs
  }
}

/** A watch and its reports. */
function watching(t: TestContext) {
  const clock = new BusyClock()
  const metrics = createMetrics()
  const { log, lines } = recordedLog()
  t.after(watchStalls({ clock, log, metrics }))
  const work = (what: Work, ms: number) => during(what, () => void (clock.busyMs += ms))
  async function counted(name: string): Promise<Record<string, number>> {
    const text = await metrics.registry.metrics()
    const found = text.matchAll(
      new RegExp(`^breakwater_event_loop_${name}\\{during="(\\w+)"\\} (\\S+)$`, 'gm'),
    )
    return Object.fromEntries(
      [...found].map(([, what = '', value]): [string, number] => [what, Number(value)]),
    )
  }
  return { clock, lines, work, counted }
}

const none = Object.fromEntries(works.map((work) => [work, 0]))

test('without a stall every series is at 0', async (t) => {
  const { clock, lines, work, counted } = watching(t)
  for (let n = 0; n < 10; n++) {
    work('schema', 90)
    await clock.advance(100)
  }
  assert.deepEqual(await counted('stalls_total'), none)
  assert.deepEqual(lines, [])
})

test('a stall is counted under what took most of it, and said in the log', async (t) => {
  const { clock, lines, work, counted } = watching(t)
  work('schema', 30)
  work('reload', 400)
  work('fan_out', 70)
  await clock.advance(100)
  assert.deepEqual(await counted('stalls_total'), { ...none, reload: 1 })
  assert.deepEqual(await counted('stalled_seconds_total'), { ...none, reload: 0.5 })
  assert.deepEqual(
    lines.map(({ msg, ms, during: what }) => [msg, ms, what]),
    [['the event loop stood still', 500, 'reload']],
  )
})

test('work within other work counts once, under the name of that which did it', async (t) => {
  const { clock, work, counted } = watching(t)
  during('reply', () => {
    clock.busyMs += 10
    during('fan_out', () => {
      work('metrics', 20)
      work('metrics', 20)
      clock.busyMs += 200
    })
  })
  await clock.advance(100)
  assert.deepEqual(await counted('stalls_total'), { ...none, fan_out: 1 })
  during('reply', () => {
    work('fan_out', 100)
    clock.busyMs += 150
  })
  await clock.advance(100)
  assert.deepEqual(await counted('stalls_total'), { ...none, fan_out: 1, reply: 1 })
})

test('a stall that nothing known explains is that of something else', async (t) => {
  const { clock, work, counted } = watching(t)
  work('catalog', 100)
  clock.busyMs += 150
  await clock.advance(100)
  assert.deepEqual(await counted('stalls_total'), { ...none, other: 1 })
})

test('one stall a second is logged', async (t) => {
  const { clock, lines, work, counted } = watching(t)
  for (let n = 0; n < 20; n++) {
    work('reply', 150)
    await clock.advance(100)
  }
  assert.deepEqual(await counted('stalls_total'), { ...none, reply: 20 })
  assert.ok(lines.length <= 6, `${lines.length} lines`)
  assert.ok(lines.some(({ dropped }) => typeof dropped === 'number'))
})

test('failing work counts, and fails as usual', (t) => {
  const { clock } = watching(t)
  assert.throws(
    () =>
      during('schema', () => {
        clock.busyMs += 10
        throw new Error('as it would')
      }),
    /as it would/,
  )
})
