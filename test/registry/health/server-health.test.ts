import assert from 'node:assert/strict'
import { test } from 'node:test'
import { serverHealth } from '../../../src/config/schema/health-schema.ts'
import type { FailureReason, Probe } from '../../../src/registry/health/probe.ts'
import { ServerHealth } from '../../../src/registry/health/server-health.ts'
import { ManualClock } from '../../support/manual-clock.ts'

/** The health of a server with these settings, and instant probes. */
function watched(settings: object = {}) {
  const clock = new ManualClock()
  let config = serverHealth.parse(settings)
  const health = new ServerHealth(clock, () => config)
  const probe = (more: Partial<Probe>) =>
    health.take({ beganAt: clock.wall(), beganNow: clock.now(), took: {}, failure: undefined, ...more })
  return {
    clock,
    health,
    configure: (changed: object) => void (config = serverHealth.parse(changed)),
    well: (took: Probe['took'] = {}) => probe({ took }),
    bad: (reason: FailureReason, isCertain = false) =>
      probe({ failure: { reason, message: 'in words', isCertain } }),
  }
}

test('one failed probe is a suspicion, the second in a row an incident, and a good probe ends the incident', async () => {
  const { health, clock, well, bad } = watched()
  assert.equal(health.state, 'unknown')
  const wellAt = clock.wall()
  assert.deepEqual(well(), {
    state: 'well',
    failure: undefined,
    since: undefined,
    sinceNow: undefined,
    notBeforeNow: undefined,
    lastWellAt: wellAt,
  })
  await clock.advance(60_000)
  const began = clock.wall()
  assert.equal(bad('timeout').state, 'suspicious')
  assert.equal(well().state, 'well')
  await clock.advance(60_000)
  assert.equal(bad('timeout').state, 'suspicious')
  await clock.advance(1_000)
  const verdict = bad('connection_refused')
  assert.deepEqual(
    [verdict.state, verdict.failure?.reason, verdict.since, health.failures],
    ['failing', 'connection_refused', began + 60_000, 2],
  )
  assert.equal(bad('connection_refused').state, 'failing')
  assert.equal(well().state, 'well')
  assert.equal(health.failure, undefined)
})

test('the number of failures is a setting, which a reload may change', () => {
  const { bad, configure } = watched({ failures: 3 })
  assert.deepEqual([bad('tls').state, bad('tls').state], ['suspicious', 'suspicious'])
  configure({ failures: 1 })
  assert.equal(bad('tls').state, 'failing')
})

test('the end of a process takes no second failure', () => {
  const { well, bad } = watched({ failures: 10 })
  well()
  assert.equal(bad('process_exit', true).state, 'failing')
})

test('the trouble began at the first sign of it; a probe that is well clears signs', async () => {
  const { health, clock, well, bad } = watched({ failures: 1 })
  well()
  health.sign()
  await clock.advance(500)
  well()
  await clock.advance(500)
  const signAt = clock.wall()
  health.sign()
  await clock.advance(200)
  health.sign()
  await clock.advance(200)
  assert.equal(bad('connection_refused').since, signAt)
})

test('in doubt a server is probed six times as often, at most once a second', () => {
  const pauses = (every: string) => {
    const { health, well, bad } = watched({ every })
    well()
    const before = health.pauseMs
    bad('wrong_answer')
    return [before, health.pauseMs]
  }
  assert.deepEqual(pauses('60s'), [60_000, 10_000])
  assert.deepEqual(pauses('2s'), [2_000, 1_000])
  assert.deepEqual(pauses('1s'), [1_000, 1_000])
})

test('servers that begin together are not probed together: the first pause is a part of the usual one', () => {
  const clock = new ManualClock()
  const health = new ServerHealth(clock, () => serverHealth.parse({}), 0.25)
  const well = () =>
    health.take({ beganAt: clock.wall(), beganNow: clock.now(), took: {}, failure: undefined })
  well()
  assert.equal(health.pauseMs, 15_000)
  well()
  assert.equal(health.pauseMs, 60_000)
})

test('two seconds above a baseline of 200 ms are an incident after two probes, and less than twice the baseline is none', () => {
  const { health, well } = watched()
  for (let i = 0; i < 5; i++) well({ ping: i === 0 ? 150 : 200 })
  assert.deepEqual(health.paces, [{ step: 'ping', latestMs: 200, baselineMs: 200 }])
  assert.equal(well({ ping: 400 }).state, 'well')
  const first = well({ ping: 2_200 })
  assert.deepEqual([first.state, first.failure?.reason], ['suspicious', 'slow'])
  const second = well({ ping: 2_200 })
  assert.equal(second.state, 'failing')
  assert.equal(second.failure?.message, 'ping took 2.2s, more than 400ms; 200ms is usual')
  // Slow probes are not learned from, so the usual time does not drift.
  for (let i = 0; i < 100; i++) assert.equal(well({ ping: 2_200 }).state, 'failing')
  assert.equal(health.paces[0]?.baselineMs, 200)
  assert.equal(well({ ping: 210 }).state, 'well')
  assert.equal(well({ ping: 2_200 }).state, 'suspicious')
})

test('a baseline of a millisecond has a margin: what nobody notices is not slow', () => {
  const { well } = watched()
  for (let i = 0; i < 5; i++) well({ ping: 1 })
  for (let i = 0; i < 5; i++) assert.equal(well({ ping: 100 }).state, 'well')
  assert.equal(well({ ping: 500 }).failure?.reason, 'slow')
})

test('with fewer than five well probes nothing is usual yet, and nothing slow', () => {
  const { health, well } = watched()
  for (const ms of [1, 5_000, 1, 5_000]) assert.equal(well({ ping: ms }).state, 'well')
  assert.equal(health.paces[0]?.baselineMs, undefined)
})

test('steps have baselines of their own: lists may take longer than pings', () => {
  const { well } = watched()
  for (let i = 0; i < 5; i++) {
    assert.equal(well({ ping: 10 }).state, 'well')
    assert.equal(well({ list: 900, tool: 50 }).state, 'well')
  }
  assert.equal(well({ list: 950 }).state, 'well')
  assert.equal(well({ tool: 950 }).failure?.reason, 'slow')
})

test('a p95 is more than one slow probe in twenty, whether they come in a row or not', () => {
  const { well } = watched({ slow: { p95: '500ms' } })
  for (let i = 0; i < 18; i++) well({ ping: 10 })
  assert.equal(well({ ping: 600 }).state, 'suspicious')
  assert.equal(well({ ping: 10, list: 9_000 }).state, 'well', 'listing does not count as a ping')
  assert.equal(well({ ping: 600 }).state, 'failing')
  assert.equal(well({ ping: 500 }).state, 'well')

  const rare = watched({ slow: { p95: '500ms' } })
  for (let round = 0; round < 5; round++) {
    assert.equal(rare.well({ ping: 600 }).state, 'suspicious')
    for (let i = 0; i < 20; i++) assert.equal(rare.well({ ping: 10 }).state, 'well')
  }
})

test('nothing is slow where the config says so', () => {
  const { well } = watched({ slow: false })
  for (let i = 0; i < 6; i++) well({ ping: 1 })
  assert.equal(well({ ping: 60_000 }).state, 'well')
})
