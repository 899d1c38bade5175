import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import type { Report } from '../../src/experiments/report.ts'
import { until } from '../support/until.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type GatewayParts, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

const INTENT = 'dev.breakwater/intent'

after(cleanUp)

/** Five percent of attempts of reading calls fail, in every arm. */
const failing = (rate = 0.05) => ({
  enabled: true,
  seed: 7,
  faults: [{ name: 'flaky', type: 'rpc.error', rate, ttl: '10m', match: { server: 'flaky' } }],
})

interface Verdict {
  readonly result: string
  readonly sentence: string
  readonly difference: number
  readonly low: number
  readonly high: number
  readonly units: number
  readonly harm: boolean
}

interface Shown {
  readonly state: string
  readonly endedBecause?: string
  readonly arms: Readonly<Record<string, { readonly set: string; readonly units: number }>>
  readonly verdict: Verdict
}

/** Starts a gateway with one experiment before a server of read-only tools. */
async function started(experiment: Json, more: Partial<GatewayParts> = {}) {
  const server = await FlakyServer.start()
  const parts: GatewayParts = {
    servers: { flaky: { url: server.url, trusted: true } },
    // Otherwise the gateway would slow down agents that keep calling an arm with an open breaker.
    gateway: { environment: 'staging', limits: { rejectionPause: 0 } },
    policies: {
      defaults: { retry: { base: '1ms', cap: '2ms' } },
      sets: {
        no_retry: { retry: false },
        same: {},
        absurd: { retry: false, breaker: { minimum: 1, ratio: 0.01, open: '10m', maxOpen: '10m' } },
      },
    },
    chaos: failing(),
    telemetry: { intents: { idle: '1s' } },
    experiments: [{ name: 'canary', ...experiment }],
    ...more,
  }
  const gateway = await Gateway.start(parts)
  await gateway.waitFor('up', 'flaky')
  await gateway.post('/admin/chaos/arm')
  const shown = async () => (await gateway.admin<Shown>('/admin/experiments/canary')).body
  return { gateway, server, parts, shown }
}

/** Runs tasks of four calls, some concurrent, until `enough` returns true; resolves to the number of tasks. */
async function drive(
  gateway: Gateway,
  most: number,
  enough: () => Promise<boolean> = () => Promise.resolve(false),
) {
  const client = await RawClient.open(gateway.mcp('flaky'))
  let tasks = 0
  while (tasks < most && !(await enough())) {
    await Promise.all(
      Array.from({ length: 20 }, async () => {
        const task = `task ${tasks++}`
        for (let step = 0; step < 4; step++) {
          const _meta = { [INTENT]: task, 'dev.breakwater/step': step }
          await client.request('tools/call', { name: 'read', arguments: { step }, _meta })
        }
      }),
    )
  }
  return tasks
}

const hasEnded = (shown: () => Promise<Shown>) => async () => (await shown()).state === 'ended'

// Concurrent, because the tests mostly wait and share no state.
describe('experiments', { concurrency: 3 }, () => {
  test('retries are found better than none, with the truth in the interval', async () => {
    const { gateway, shown } = await started({
      arms: { control: 'no_retry', treatment: 'default' },
      metric: 'tasks_without_failure',
      minimumEffect: 0.02,
      minimumUnits: 100,
    })
    await drive(gateway, 2_000, hasEnded(shown))
    const { state, endedBecause, verdict } = await shown()
    assert.deepEqual([state, endedBecause], ['ended', 'its verdict was found'], verdict.sentence)
    assert.equal(verdict.result, 'better', verdict.sentence)
    // Without retries a task of four calls succeeds with 0.95⁴; with two retries a call fails with 0.05³.
    const truth = (1 - 0.05 ** 3) ** 4 - 0.95 ** 4
    assert.ok(verdict.low <= truth && truth <= verdict.high, `${truth} in ${verdict.low} to ${verdict.high}`)
    assert.match(
      verdict.sentence,
      /^default wins: \d+\.?\d* points more tasks go without a failed call \(95 % CI /,
    )
    // It leaves no trace: calls use the default set again, outside any arm.
    const before = (await shown()).arms
    await drive(gateway, 20)
    assert.deepEqual((await shown()).arms, before)
  })

  test('between two equal sets no difference is found', async () => {
    const { gateway, shown } = await started({
      arms: { control: 'default', treatment: 'same' },
      minimumEffect: 0.06,
      minimumUnits: 150,
    })
    await drive(gateway, 3_000, hasEnded(shown))
    const { state, verdict } = await shown()
    assert.deepEqual([state, verdict.result], ['ended', 'no_difference_found'], verdict.sentence)
  })

  test('an arm that does harm ends the experiment early', async () => {
    const { gateway, shown } = await started({
      arms: { control: 'default', treatment: 'absurd' },
      minimumUnits: 600,
    })
    const tasks = await drive(gateway, 1_160, hasEnded(shown))
    const { state, endedBecause, verdict } = await shown()
    assert.deepEqual([state, endedBecause], ['ended', 'an arm did harm'], verdict.sentence)
    assert.deepEqual([verdict.result, verdict.harm], ['worse', true])
    assert.ok(tasks < 1_160, `${tasks} tasks`)
  })

  test('a reload keeps arms and what they know; a changed set ends the experiment and says so', async () => {
    const { gateway, parts, shown } = await started({ arms: { control: 'default', treatment: 'no_retry' } })
    await drive(gateway, 40)
    await until('the tasks are over', async () => (await shown()).verdict.units === 40)
    const { arms } = await shown()
    await gateway.reconfigure({ ...parts, gateway: { ...parts.gateway, drain: '9s' } })
    await until('the config is in force', async () =>
      gateway.log.some(({ msg }) => msg === 'config reloaded'),
    )
    assert.deepEqual((await shown()).arms, arms)
    assert.equal((await shown()).state, 'running')
    const sets = { ...(parts.policies?.sets as Json), no_retry: { retry: { maxRetries: 1 } } }
    await gateway.reconfigure({ ...parts, policies: { ...parts.policies, sets } })
    await until('the experiment has ended', hasEnded(shown))
    assert.equal((await shown()).endedBecause, 'the policy set "no_retry" changed')
    const again = await gateway.post<Shown>('/admin/experiments/canary/start')
    assert.deepEqual([again.status, again.body.state], [200, 'running'])
    const twice = await gateway.post('/admin/experiments/canary/start')
    assert.deepEqual([twice.status, twice.body.error], [409, 'experiment "canary" runs already'])
    const unknown = await gateway.post('/admin/experiments/canari/start')
    assert.equal(unknown.body.error, 'there is no experiment "canari"; there are canary')
    const stopped = await gateway.post<Shown>('/admin/experiments/canary/stop')
    assert.deepEqual([stopped.body.state, stopped.body.endedBecause], ['ended', 'it was stopped by hand'])
  })

  test('an ended run is reported with its own settings, whatever the config now says', async () => {
    const { gateway, parts, shown } = await started({ arms: { control: 'default', treatment: 'no_retry' } })
    await drive(gateway, 20)
    const sets = { ...(parts.policies?.sets as Json), no_retry: { retry: { maxRetries: 7 } } }
    const experiments = [
      {
        name: 'canary',
        arms: { old: 'same', new: 'absurd' },
        metric: 'mean_ms',
        minimumEffect: 5,
        active: false,
      },
    ]
    await gateway.reconfigure({ ...parts, policies: { ...parts.policies, sets }, experiments })
    await until('the run has ended', hasEnded(shown))
    const { endedBecause, arms } = await shown()
    assert.equal(endedBecause, 'its settings changed')
    assert.deepEqual(Object.keys(arms), ['control', 'treatment'])
    const report = await gateway.admin<Report>('/admin/experiments/canary/report')
    assert.equal(report.status, 200)
    const { settings, metric, verdict } = report.body
    assert.equal(metric, 'tasks_without_failure')
    assert.match(verdict?.sentence ?? '', /tasks in default and \d+ in no_retry/)
    assert.deepEqual(settings[0], { setting: 'retry', byArm: { treatment: 'false' } })
    const base = settings.find(({ setting }) => setting === 'retry.base')
    assert.deepEqual(base?.byArm, { control: '1ms' }, 'the value has its unit')
    const again = await gateway.post<Shown>('/admin/experiments/canary/start')
    assert.deepEqual(Object.keys(again.body.arms), ['old', 'new'])
  })

  test('experiments export their samples as CSV, a line for each task and arm', async () => {
    const { gateway } = await started({ arms: { control: 'default', treatment: 'no_retry' } })
    await drive(gateway, 20)
    const url = `${gateway.control}/admin/experiments/canary/samples`
    const response = await fetch(url, { headers: { authorization: `Bearer ${gateway.token}` } })
    assert.match(response.headers.get('content-type') ?? '', /^text\/csv/)
    const [head, ...lines] = (await response.text()).trim().split('\n')
    assert.match(head ?? '', /^unit,arm,calls,failed,valid,eligible,returned,good,unchecked,attempts,/)
    assert.equal(lines.length, 20)
    assert.ok(
      lines.every((line) => /^meta raw\/task \d+,(control|treatment),4,\d,4,4,\d,\d+,/.test(line)),
      lines[0],
    )
  })
})
