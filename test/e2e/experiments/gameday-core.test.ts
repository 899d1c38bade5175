import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, test } from 'node:test'
import { until } from '../../support/until.ts'
import { FlakyServer } from '../support/flaky.ts'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { shown, specOf, started, traffic } from './scene.ts'

afterEach(cleanUp)

/** How long a GameDay may take to come to a place, in milliseconds; a loaded machine is slow. */
const LONG = 90_000

interface Day {
  readonly id: string
  readonly state: string
  readonly reason: string
  readonly steps: readonly {
    readonly name: string
    readonly state: string
    readonly note: string
    readonly runs: readonly string[]
    readonly result?: { readonly state: string }
  }[]
}

/** An experiment that lasts until the test ends it. */
const lasting = (name: string, more: Json = {}) => ({
  spec: specOf({
    name,
    gate: { rollbackOn: [{ metric: 'rejected_ratio', above: '99%' }], over: '1s', minimum: 4 },
    stages: [{ share: '25%', duration: '10m' }],
    ...more,
  }),
})

const planOf = (more: Json = {}): Json => ({
  name: 'day',
  title: 'A day',
  roles: { lead: 'ops' },
  hypothesis: 'Agents get answers.',
  scope: { servers: ['flaky'] },
  experiments: [lasting('one')],
  ...more,
})

const begin = async (gateway: Gateway, more: Json = {}) => {
  const answer = await gateway.post<Day>('/admin/gamedays', { plan: planOf(more), by: 'ops' })
  assert.equal(answer.status, 202, JSON.stringify(answer.body))
}

const dayOf = async (gateway: Gateway) => (await gateway.admin<Day>('/admin/gamedays/day')).body

const order = (gateway: Gateway, what: string) =>
  gateway.post<Day>(`/admin/gamedays/day/${what}`, { by: 'ops', why: 'a test' })

const comesTo = (gateway: Gateway, what: string, holds: (day: Day) => boolean) =>
  until(`the GameDay is ${what}`, async () => holds(await dayOf(gateway)), LONG)

const armedIn = async (gateway: Gateway) => {
  const { faults } = (await gateway.admin<{ faults: { name: string; armed: boolean }[] }>('/admin/chaos'))
    .body
  return faults.filter(({ armed }) => armed).map(({ name }) => name)
}

/** Waits until the faults of an experiment hit calls. */
async function hits(gateway: Gateway, name: string): Promise<void> {
  await until(
    `faults of ${name} hit calls`,
    async () => {
      const run = await shown(gateway, name)
      return (
        run.state === 'running' && run.phase === 'stage' && run.faults.some(({ injected }) => injected > 0)
      )
    },
    LONG,
  )
}

/** Returns the GameDay as it is on disk. */
async function onDisk(folder: string): Promise<Day> {
  const place = join(folder, 'state', 'gamedays')
  const [file] = (await readdir(place)).filter((name) => name.endsWith('.json'))
  return (JSON.parse(await readFile(join(place, file!), 'utf8')) as { record: { gameDay: Day } }).record
    .gameDay
}

test('a pause in a stage clears the faults, and the experiment begins anew', async () => {
  const { gateway } = await started()
  const agents = await traffic(gateway)
  await begin(gateway, { experiments: [lasting('one'), { spec: specOf({ name: 'two' }) }] })
  await hits(gateway, 'one')
  assert.deepEqual(await armedIn(gateway), ['runtime-broken'])
  assert.equal((await order(gateway, 'pause')).body.state, 'paused')
  assert.deepEqual(await armedIn(gateway), [])
  const { failed } = agents.counts
  const before = agents.counts.calls
  await until('100 more calls', () => agents.counts.calls >= before + 100, LONG)
  assert.ok(agents.counts.failed - failed <= 4, 'only calls under way at the pause fail')
  assert.equal((await order(gateway, 'resume')).status, 200)
  await comesTo(gateway, 'in the first experiment again', ({ steps }) => steps[0]!.runs.length === 2)
  await hits(gateway, 'one')
  const [one] = (await dayOf(gateway)).steps
  assert.equal(((await shown(gateway, 'one')) as unknown as Json).id, one!.runs[1])
  assert.equal((await order(gateway, 'skip')).status, 200)
  await comesTo(gateway, 'over', ({ state }) => state !== 'running')
  await agents.stop()
  const { state, reason, steps } = await dayOf(gateway)
  assert.deepEqual(
    [state, reason, steps.map((step) => [step.state, step.result?.state])],
    [
      'over',
      'all experiments were run or skipped',
      [
        ['skipped', undefined],
        ['done', 'aborted'],
      ],
    ],
  )
})

test('a GameDay of a killed gateway is paused without faults, continues, and still hears its neighbours', async () => {
  const neighbour = await FlakyServer.start()
  const { gateway, folder, parts } = await started()
  const both = { ...parts, servers: { ...parts.servers, other: { url: neighbour.url, trusted: true } } }
  await gateway.reconfigure(both)
  await gateway.waitFor('up', 'flaky', 'other')
  const agents = await traffic(gateway)
  const stop = { neighbours: [{ metric: 'error_ratio', above: '20%' }], incidents: false }
  await begin(gateway, { stop })
  await hits(gateway, 'one')
  await until('the run is on disk', async () => (await onDisk(folder)).steps[0]!.state === 'running', LONG)
  gateway.program.signal('SIGKILL')
  await gateway.program.ended
  await agents.stop()

  const again = await Gateway.start(both, { folder })
  await again.waitFor('up', 'flaky', 'other')
  const paused = await dayOf(again)
  assert.deepEqual(
    [paused.state, paused.reason, paused.steps[0]!.state],
    ['paused', 'the gateway paused it: the gateway ended', 'planned'],
  )
  assert.deepEqual(await armedIn(again), [])
  assert.equal((await onDisk(folder)).state, 'paused')
  const more = await traffic(again)
  await until('20 calls', () => more.counts.calls >= 20, LONG)
  assert.equal(more.counts.failed, 0)
  assert.equal((await order(again, 'resume')).status, 200)
  await hits(again, 'one')
  const others = await traffic(again, 2, 'other')
  await neighbour.behave({ read: { failing: 1 } })
  await comesTo(again, 'stopped', ({ state }) => state !== 'running')
  const { state, reason } = await dayOf(again)
  assert.equal(state, 'stopped')
  assert.match(
    reason,
    /^error_ratio of the servers outside of the scope was \d+(\.\d+)?% over \d+ calls, above 20%$/,
  )
  assert.deepEqual(await armedIn(again), [])
  await Promise.all([more.stop(), others.stop()])
})

test('a server outside of the scope, or removed from the config, pauses the GameDay with the reason', async () => {
  const other = await FlakyServer.start()
  const { gateway, parts } = await started()
  const both = { ...parts, servers: { ...parts.servers, other: { url: other.url, trusted: true } } }
  await gateway.reconfigure(both)
  await gateway.waitFor('up', 'other')
  const agents = await traffic(gateway)
  const outside = lasting('outside', { targets: { server: '*', environment: 'staging' } })
  await begin(gateway, { experiments: [outside, lasting('one')] })
  await comesTo(gateway, 'paused', ({ state }) => state !== 'running')
  const { state, reason } = await dayOf(gateway)
  assert.equal(state, 'paused')
  assert.match(reason, /outside was refused: .*the server other is outside of the scope of the GameDay/)
  assert.deepEqual(await armedIn(gateway), [])
  await order(gateway, 'skip')
  await order(gateway, 'resume')
  await hits(gateway, 'one')
  await gateway.reconfigure({ ...parts, servers: { other: { url: other.url, trusted: true } } })
  await comesTo(gateway, 'over', ({ state }) => state !== 'running')
  const { steps } = await dayOf(gateway)
  assert.deepEqual([steps[1]!.state, steps[1]!.result?.state], ['done', 'failed'])
  assert.deepEqual(await armedIn(gateway), [])
  await agents.stop()
})

test('a gateway that is stopped leaves its GameDay paused', async () => {
  const { gateway, folder, parts } = await started()
  const agents = await traffic(gateway)
  await begin(gateway)
  await hits(gateway, 'one')
  gateway.program.signal('SIGTERM')
  assert.equal((await gateway.program.ended).code, 0)
  await agents.stop()
  const { state, reason, steps } = await onDisk(folder)
  assert.deepEqual(
    [state, reason, steps[0]!.state],
    ['paused', 'the gateway paused it: the gateway was stopped', 'planned'],
  )
  const again = await Gateway.start(parts, { folder })
  assert.equal((await dayOf(again)).reason, reason)
  assert.deepEqual(await armedIn(again), [])
})
