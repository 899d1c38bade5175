import assert from 'node:assert/strict'
import { test } from 'node:test'
import { StopConditions } from '../../src/gamedays/stop-conditions.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { planOf } from './days.ts'

interface Open {
  readonly id: string
  readonly server: string
  readonly reason: string
}

const limited = { neighbours: [{ metric: 'error_ratio', above: '2%', for: '30s' }] }

function watched(stop: object, { servers = ['a'], open = [] as Open[] } = {}) {
  const clock = new ManualClock()
  const plan = planOf({ stop, scope: { servers } })
  const conditions = new StopConditions(plan, { clock, incidents: () => open })
  /** Plays seconds with 10 calls each, and looks after each second. */
  const play = async (seconds: number, server: string, failing: number) => {
    for (let second = 0; second < seconds; second++) {
      for (let at = 0; at < 10; at++) {
        const isWrong = at < failing * 10
        conditions.add(server, { isWrong, isRejected: false, attempts: 1, rejections: [], tookMs: 5 })
      }
      await clock.advance(1_000)
      const found = conditions.look()
      if (found !== undefined) return { second, found }
    }
    return undefined
  }
  return { clock, conditions, play, open }
}

test('failing neighbours stop a GameDay once they have failed for the whole time', async () => {
  const { play } = watched(limited)
  const found = await play(60, 'b', 0.5)
  assert.equal(found?.second, 30)
  assert.match(
    found.found,
    /^error_ratio of the servers outside of the scope was 50% over 1\d\d calls, above 2% for 30s$/,
  )
})

test('failing servers of the scope stop nothing', async () => {
  const { play } = watched(limited, { servers: ['b*'] })
  assert.equal(await play(60, 'b2', 1), undefined)
})

test('a neighbour that recovers in time stops nothing', async () => {
  const { play } = watched(limited)
  assert.equal(await play(18, 'b', 0.5), undefined)
  assert.equal(await play(15, 'b', 0), undefined)
  assert.equal(await play(18, 'b', 0.5), undefined)
})

test('a limit counts anew after a pause', async () => {
  const { play, clock } = watched(limited)
  assert.equal(await play(29, 'b', 0.5), undefined)
  await clock.advance(600_000)
  assert.equal(await play(29, 'b', 0.5), undefined)
})

test('fewer than ten calls are no judgement', async () => {
  const { conditions, clock } = watched({ neighbours: [{ metric: 'error_ratio', above: '2%' }] })
  for (let at = 0; at < 9; at++)
    conditions.add('b', { isWrong: true, isRejected: false, attempts: 1, rejections: [], tookMs: 5 })
  await clock.advance(1_000)
  assert.equal(conditions.look(), undefined)
})

test('a new incident outside of the scope stops a GameDay, an older one and one inside do not', () => {
  const old = { id: '1', server: 'b', reason: 'connection_refused' }
  const { conditions, open } = watched({}, { open: [old] })
  open.push({ id: '2', server: 'a', reason: 'timeout' })
  assert.equal(conditions.look(), undefined)
  open.push({ id: '3', server: 'b', reason: 'timeout' })
  assert.equal(conditions.look(), 'an incident of b, outside of the scope, has begun: timeout')
})

test('incidents stop nothing with `incidents: false`', () => {
  const { conditions, open } = watched({ incidents: false })
  open.push({ id: '3', server: 'b', reason: 'timeout' })
  assert.equal(conditions.look(), undefined)
})
