import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { health as schema, serverHealth } from '../../../src/config/schema/health-schema.ts'
import { server as serverSchema } from '../../../src/config/schema/server-schema.ts'
import type { FailureReason } from '../../../src/registry/health/probe.ts'
import { shown } from '../../../src/registry/health/notices.ts'
import { ServerHealth } from '../../../src/registry/health/server-health.ts'
import { HealthWatch } from '../../../src/registry/health/watch.ts'
import { createMetrics } from '../../../src/telemetry/metrics.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { silent } from '../../support/log.ts'
import { until } from '../../support/until.ts'
import { startReceiver } from './receiver.ts'

async function folderFor(t: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-watch-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  return folder
}

/** A clock with a wall clock that is set now and then. */
class SteppedClock extends ManualClock {
  stepMs = 0

  override wall(): number {
    return super.wall() + this.stepMs
  }
}

/** A watch over one server with scripted probes. */
async function watching(t: TestContext, settings: object, { clock = new ManualClock(), stateDir = '' } = {}) {
  const metrics = createMetrics()
  const watch = new HealthWatch({
    clock,
    random: () => 0,
    log: silent,
    metrics,
    stateDir: stateDir === '' ? undefined : stateDir,
    environment: 'test',
  })
  t.after(() => watch.close())
  const mcpServers = { search: serverSchema.parse({ url: 'http://127.0.0.1/mcp' }) }
  const follow = (given: object) => watch.follow({ health: schema.parse(given), mcpServers })
  await watch.load()
  follow(settings)
  const health = new ServerHealth(clock, () => serverHealth.parse({}))
  const probe = (failure?: { reason: FailureReason; message: string; isCertain?: boolean }) => {
    const made = { beganAt: clock.wall(), beganNow: clock.now(), took: {}, failure }
    watch.probed({ name: 'search', health }, made, health.take(made))
  }
  return {
    clock,
    watch,
    metrics,
    health,
    follow,
    well: () => probe(),
    bad: (reason: FailureReason, message = 'in words') =>
      probe({ reason, message, isCertain: reason === 'process_exit' }),
    /** Waits until no notice is pending: an advancing clock would end notices under way. */
    told: () => until('notices are sent', () => !JSON.stringify(watch.incidents.list()).includes('pending')),
    latest: () => {
      const [incident] = watch.incidents.list()
      assert.ok(incident)
      return { ...incident, ...shown(incident) }
    },
  }
}

test('a restart loop is one incident with one notice of its begin, one of its lasting, and one of its end', async (t) => {
  const receiver = await startReceiver(t)
  const { clock, watch, health, well, bad, latest, told } = await watching(t, {
    webhooks: [{ type: 'json', url: receiver.url }],
    escalateAfter: '1m',
  })
  well()
  const startedAt = clock.wall()
  for (let turn = 0; turn < 10; turn++) {
    bad('process_exit')
    await told()
    await clock.advance(1_000)
    well()
    assert.equal(latest().state, 'open')
    await clock.advance(9_000)
  }
  assert.equal(watch.incidents.list().length, 1)
  bad('process_exit')
  await clock.advance(500)
  well()
  const wellAt = clock.wall()
  // The next probe comes in time, though its usual pause is longer.
  assert.equal(health.pauseMs, 30_000)
  await clock.advance(29_999)
  well()
  assert.equal(latest().state, 'open')
  await clock.advance(1)
  well()
  await told()
  const { end, endedAt, timeToRecoverMs } = latest()
  assert.deepEqual(
    [end, endedAt, timeToRecoverMs],
    ['recovered', new Date(wellAt).toISOString(), wellAt - startedAt],
  )
  assert.deepEqual(
    receiver.received.map(({ body }) => body.event),
    ['incident.opened', 'incident.escalated', 'incident.recovered'],
  )
  assert.equal(health.pauseMs, 60_000)
})

test('other outages end with the first well probe, but for one that follows another within five minutes', async (t) => {
  const { clock, watch, well, bad, latest } = await watching(t, {})
  const outage = () => {
    bad('timeout')
    bad('timeout')
  }
  outage()
  well()
  assert.equal(latest().state, 'closed')
  await clock.advance(299_000)
  outage()
  well()
  assert.equal(latest().state, 'open')
  await clock.advance(30_000)
  well()
  assert.equal(latest().state, 'closed')
  await clock.advance(301_000)
  outage()
  well()
  assert.equal(latest().state, 'closed')
  assert.equal(watch.incidents.list().length, 3)
})

test('an incident that may be over is not escalated before a probe denies the end', async (t) => {
  const { clock, well, bad, latest } = await watching(t, { escalateAfter: '10s' })
  bad('process_exit')
  await clock.advance(9_000)
  well()
  await clock.advance(2_000)
  assert.equal(latest().escalatedAt, undefined)
  bad('process_exit')
  assert.equal(latest().escalatedAt, new Date(clock.wall()).toISOString())
})

test('an end is sent to every receiver of the lasting notice, even without a webhook at the begin', async (t) => {
  const receiver = await startReceiver(t)
  const { clock, follow, well, bad, told } = await watching(t, { escalateAfter: '10s' })
  bad('timeout')
  bad('timeout')
  follow({ escalateAfter: '10s', webhooks: [{ type: 'pagerduty', routingKey: 'K3Y', url: receiver.url }] })
  await clock.advance(10_000)
  await told()
  well()
  await told()
  assert.deepEqual(
    receiver.received.map(({ body }) => body.event_action),
    ['trigger', 'resolve'],
  )
})

test('an end is not told to another receiver that has the name by then, and to the same one under it', async (t) => {
  const [first, second] = [await startReceiver(t), await startReceiver(t)]
  const { follow, well, bad, told } = await watching(t, {
    webhooks: [
      { type: 'pagerduty', name: 'a', routingKey: 'K3Y', url: first.url },
      { type: 'pagerduty', name: 'b', routingKey: 'K3Y', url: first.url },
    ],
  })
  bad('timeout')
  bad('timeout')
  await told()
  follow({
    webhooks: [
      { type: 'pagerduty', name: 'a', routingKey: '0THER', url: first.url },
      { type: 'pagerduty', name: 'b', routingKey: 'K3Y', url: first.url },
      { type: 'json', url: second.url },
    ],
  })
  well()
  await told()
  assert.deepEqual(
    first.received.map(({ body }) => [body.event_action, body.routing_key]),
    [
      ['trigger', 'K3Y'],
      ['trigger', 'K3Y'],
      ['resolve', 'K3Y'],
    ],
  )
  assert.deepEqual(second.received, [])
})

test('a notice follows its record on the disk: a process killed right then leaves no endless incident', async (t) => {
  const stateDir = await folderFor(t)
  const onDisk: (string | undefined)[] = []
  const receiver = await startReceiver(t, [], (_, response) => {
    void readFile(join(stateDir, 'incidents.json'), 'utf8').then((text) => {
      const { incidents } = JSON.parse(text) as { incidents: { end?: string }[] }
      onDisk.push(incidents[0]?.end ?? 'open')
      response.end()
    })
  })
  const { well, bad, told } = await watching(
    t,
    { webhooks: [{ type: 'json', url: receiver.url }] },
    { stateDir },
  )
  bad('timeout')
  bad('timeout')
  await told()
  well()
  await told()
  assert.deepEqual(onDisk, ['open', 'recovered'])
})

test('a disk that refuses keeps no notice back', async (t) => {
  const blocked = join(await folderFor(t), 'file')
  await writeFile(blocked, '')
  const receiver = await startReceiver(t)
  const { bad, told } = await watching(
    t,
    { webhooks: [{ type: 'json', url: receiver.url }] },
    { stateDir: join(blocked, 'below') },
  )
  bad('timeout')
  bad('timeout')
  await told()
  assert.equal(receiver.received.length, 1)
})

test('an outage that was over when the gateway began again is not escalated, and one that was not is at the first probe', async (t) => {
  for (const isOver of [true, false]) {
    const stateDir = await folderFor(t)
    const clock = new ManualClock()
    const settings = { escalateAfter: '10m' }
    const first = await watching(t, settings, { stateDir, clock })
    first.bad('timeout')
    first.bad('timeout')
    await first.watch.close()
    await clock.advance(3_600_000)
    const second = await watching(t, settings, { stateDir, clock })
    await clock.advance(1_000)
    assert.equal(second.latest().escalatedAt, undefined)
    if (isOver) second.well()
    else second.bad('timeout')
    const { state, escalatedAt } = second.latest()
    assert.deepEqual([state, escalatedAt !== undefined], isOver ? ['closed', false] : ['open', true])
  }
})

test('the older of two open incidents of one server, possible in a damaged file only, is closed', async (t) => {
  const stateDir = await folderFor(t)
  const file = join(stateDir, 'incidents.json')
  const clock = new ManualClock()
  const first = await watching(t, {}, { stateDir, clock })
  await clock.advance(5_000)
  first.bad('timeout')
  first.bad('timeout')
  await first.watch.close()
  const { incidents } = JSON.parse(await readFile(file, 'utf8')) as { incidents: { detectedAt: number }[] }
  const older = { ...incidents[0]!, id: 'older', detectedAt: incidents[0]!.detectedAt - 1_000 }
  await writeFile(file, JSON.stringify({ incidents: [...incidents, older] }))
  const { watch } = await watching(t, {}, { stateDir, clock })
  const states = watch.incidents.list().map(({ id, end }) => [id === 'older', end])
  assert.deepEqual(states, [
    [false, undefined],
    [true, 'unwatched'],
  ])
  assert.notEqual(watch.incidents.openOf('search')?.id, 'older')
})

test('an incident is detected so long after the last good probe, or after the first sign where that was no probe', async (t) => {
  for (const isSigned of [false, true]) {
    const { clock, health, metrics, well, bad, latest } = await watching(t, {})
    well()
    await clock.advance(40_000)
    if (isSigned) health.sign()
    await clock.advance(20_000)
    bad('timeout')
    await clock.advance(10_000)
    bad('timeout')
    const seconds = isSigned ? 30 : 70
    assert.equal(latest().timeToDetectMs, seconds * 1_000)
    assert.match(
      await metrics.registry.metrics(),
      new RegExp(`incident_detection_duration_seconds_sum\\{reason="timeout"\\} ${seconds}\\n`),
    )
  }
})

test('a closed incident says what its outage was, and not what a server said that was about to come back', async (t) => {
  const { clock, well, bad, latest } = await watching(t, {})
  bad('timeout', 'no answer within 5s')
  await clock.advance(1_000)
  bad('timeout', 'no answer within 5s, again')
  bad('protocol', 'HTTP 503: it starts')
  well()
  const { state, reason, reasons, message } = latest()
  assert.deepEqual(
    [state, reason, reasons, message],
    ['closed', 'timeout', ['timeout', 'protocol'], 'no answer within 5s, again'],
  )
})

test('durations are measured independently of changes to the wall clock', async (t) => {
  for (const stepMs of [-3_600_000, 3_600_000]) {
    const clock = new SteppedClock()
    const { metrics, well, bad, latest } = await watching(t, { escalateAfter: '10s' }, { clock })
    bad('timeout')
    clock.stepMs += stepMs
    await clock.advance(1_000)
    bad('timeout')
    clock.stepMs += stepMs
    await clock.advance(8_999)
    assert.equal(latest().escalatedAt, undefined)
    await clock.advance(1)
    assert.notEqual(latest().escalatedAt, undefined)
    await clock.advance(10_000)
    well()
    const { timeToDetectMs, escalatedAfterMs, timeToRecoverMs } = latest()
    assert.deepEqual([timeToDetectMs, escalatedAfterMs, timeToRecoverMs], [1_000, 10_000, 20_000])
    assert.match(
      await metrics.registry.metrics(),
      /incident_recovery_duration_seconds_sum\{reason="timeout"\} 20\n/,
    )
  }
})
