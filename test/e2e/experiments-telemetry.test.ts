import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { OtlpReceiver } from '../support/otlp-receiver.ts'
import { until } from '../support/until.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type GatewayParts, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

/** The arms agents name for their tasks; '' is a task without an arm. */
const arms = ['', 'ab/patient', 'ab/strict']

const TASKS = 12

/** The tools of each task, in order; faults hit the first. */
const calls = ['read', 'typed', 'read', 'read']

const experiment = {
  name: 'ab',
  arms: { patient: 'patient', strict: 'strict' },
  match: { server: 'flaky' },
  assignBy: 'agent',
  minimumUnits: 1_000_000,
}

const budget = { floor: 1_000, leastConcurrent: 1_000 }

function parts(url: string, experiments: readonly Json[]): GatewayParts {
  return {
    servers: { flaky: { url, trusted: true } },
    gateway: { environment: 'test' },
    policies: {
      defaults: { retry: { maxRetries: 1, base: 1, cap: 5, budget }, gate: false, overdue: false },
      sets: {
        patient: { retry: { maxRetries: 5, base: 1, cap: 5, budget } },
        strict: { retry: false, breaker: { consecutive: 3, open: '10m', maxOpen: '10m' } },
      },
    },
    chaos: {
      enabled: true,
      persist: true,
      seed: 7,
      faults: [
        { name: 'down', type: 'http.status', status: 503, rate: 0.5, ttl: '15m', match: { tool: 'read' } },
      ],
    },
    experiments,
    telemetry: { accessLog: { sample: 1 }, traces: { sample: 1 }, intents: { idle: '5s' } },
  }
}

const ends: (() => void)[] = []
let server: FlakyServer
let receiver: OtlpReceiver
let gateway: Gateway
/** The agents' counts by arm: calls, and calls rejected by a breaker. */
const got = new Map(arms.map((arm) => [arm, { calls: 0, rejected: 0 }]))

async function start(experiments: readonly Json[]): Promise<Gateway> {
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_BSP_SCHEDULE_DELAY: '20' }
  const started = await Gateway.start(parts(server.url, experiments), { env })
  await started.waitFor('up', 'flaky')
  return started
}

/** Runs agents' tasks in sequence, with the arms in turn. */
async function drive(at: Gateway, each: number, told = got): Promise<void> {
  const client = await RawClient.open(at.mcp('flaky'))
  for (let n = 0; n < each; n++)
    for (const arm of arms)
      for (const name of calls) {
        const inArm = arm === '' ? {} : { 'dev.breakwater/arm': arm.slice(3) }
        const _meta = { 'dev.breakwater/intent': `task ${n} of ${arm}`, ...inArm }
        const { error } = await client.request('tools/call', { name, arguments: {}, _meta })
        const count = told.get(arm)!
        count.calls++
        if ((error as { data?: Json } | undefined)?.data?.reason === 'breaker_open') count.rejected++
      }
}

before(async () => {
  server = await FlakyServer.start()
  receiver = await OtlpReceiver.start({ after: (end) => void ends.push(end as () => void) })
  gateway = await start([experiment])
  await drive(gateway, TASKS)
})
after(async () => {
  await cleanUp()
  for (const end of ends) end()
})

/** Returns a number by arm, without zeros. */
function byArm(value: (arm: string) => number): Record<string, number> {
  const sums = arms.map((arm): [string, number] => [arm, value(arm)])
  return Object.fromEntries(sums.filter(([, sum]) => sum !== 0))
}

const counted = (metric: string, labels = '') => gateway.sums(`breakwater_${metric}`, 'arm', labels)

const logged = () => gateway.log.filter(({ msg }) => msg === 'call')

const fromLog = (value: (line: Json) => number) =>
  byArm((arm) =>
    logged()
      .filter((line) => (line.arm ?? '') === arm)
      .reduce((sum, line) => sum + value(line), 0),
  )

test('calls and their durations are counted by arm, as agents made them', async () => {
  const made = byArm((arm) => got.get(arm)!.calls)
  assert.deepEqual(made, Object.fromEntries(arms.map((arm) => [arm, TASKS * calls.length])))
  assert.deepEqual(await counted('tool_calls_total'), made)
  assert.deepEqual(await counted('tool_call_verdicts_total'), made)
  assert.deepEqual(await counted('tool_call_duration_seconds_count'), made)
})

test('attempts, retries and rejections of each arm add up to its calls', async () => {
  const attempts = await counted('upstream_attempts_total')
  const retries = await counted('retries_total', 'decision="sent"')
  const rejections = await counted('rejections_total', 'reason="breaker_open"')
  assert.deepEqual(
    attempts,
    fromLog((line) => Number(line.attempts)),
  )
  assert.deepEqual(
    retries,
    fromLog((line) => Number(line.retries)),
  )
  assert.deepEqual(
    rejections,
    byArm((arm) => got.get(arm)!.rejected),
  )
  for (const arm of arms)
    assert.equal(attempts[arm], got.get(arm)!.calls + (retries[arm] ?? 0) - (rejections[arm] ?? 0), arm)
  assert.ok(retries['ab/patient']! > retries['']!, 'the arm with more allowed retries has more')
  assert.equal(retries['ab/strict'], undefined)
  assert.deepEqual(Object.keys(rejections), ['ab/strict'])
  assert.equal(
    Object.values(attempts).reduce((sum, count) => sum + count),
    (await server.count('read')) + (await server.count('typed')) + (await hits()),
    'attempts are the calls at the server and those answered by faults',
  )
})

const hits = async () =>
  Object.values(await counted('faults_injected_total')).reduce((sum, count) => sum + count)

test('faults and their fates are counted by arm', async () => {
  const injected = await counted('faults_injected_total', 'fault="down"')
  assert.deepEqual(Object.keys(injected).toSorted(), arms)
  assert.deepEqual(await counted('fault_outcomes_total', 'fault="down"'), injected)
  const became = (fate: string) =>
    fromLog(
      ({ fates }) => ((fates as string[] | undefined) ?? []).filter((one) => one === `down ${fate}`).length,
    )
  for (const fate of ['masked', 'surfaced', 'delayed'])
    assert.deepEqual(await counted('fault_outcomes_total', `fate="${fate}"`), became(fate), fate)
  assert.deepEqual(
    await counted('fault_reactions_total', 'reaction="resent"'),
    await counted('retries_total', 'decision="sent"'),
  )
  const { body } = await gateway.admin<{ faults: { injected: number }[] }>('/admin/chaos')
  assert.equal(body.faults[0]?.injected, await hits())
})

test('tasks are counted by arm, and by whether a call of theirs failed', async () => {
  const all = byArm(() => TASKS)
  await until('all tasks are over', async () => {
    const over = await counted('intents_total')
    return arms.every((arm) => over[arm] === TASKS)
  })
  assert.deepEqual(await counted('intent_tool_calls_count'), all)
  const failed = await counted('intents_total', 'outcome="failed"')
  assert.ok((failed['ab/patient'] ?? 0) < failed['']!, 'the arm with more retries has fewer failures')
  assert.ok(failed['']! < failed['ab/strict']!, 'the arm without retries has more failures')
})

test('spans and lines of the access log name the arm', async () => {
  const isCall = ({ attributes }: { attributes: object }) => 'gen_ai.tool.name' in attributes
  const made = TASKS * calls.length
  await until('all spans of calls have come', () => receiver.of('server').filter(isCall).length === 3 * made)
  const spans = receiver.of('server').filter(isCall)
  const inSpans = byArm(
    (arm) => spans.filter(({ attributes }) => (attributes['breakwater.arm'] ?? '') === arm).length,
  )
  assert.deepEqual(
    inSpans,
    byArm(() => made),
  )
  // The log omits some rejected calls.
  const sent = byArm((arm) => made - got.get(arm)!.rejected)
  assert.deepEqual(
    fromLog(({ result }) => (result === 'rejected' ? 0 : 1)),
    sent,
  )
})

test("the control plane shows the policies' state of each arm", async () => {
  assert.deepEqual(await counted('breaker_state', 'tool="read",state="open"'), { 'ab/strict': 1 })
  const { body } = await gateway.admin<Json[]>('/admin/breakers')
  assert.deepEqual(body.map(({ set, tool, state }) => [set, tool, state]).toSorted(), [
    ['ab/strict', 'read', 'open'],
    ['ab/strict', 'typed', 'closed'],
  ])
  const budgets = (await gateway.admin<Record<string, Json[]>>('/admin/budgets')).body
  assert.deepEqual([...new Set(budgets['retry-budget']!.map(({ set }) => set))].toSorted(), [
    'ab/patient',
    'default',
  ])
})

test('the experiment says that it runs, of how many tasks, and which calls it did not take', async () => {
  assert.equal(await gateway.metric('breakwater_experiment_running', 'experiment="ab"'), 1)
  assert.deepEqual(await counted('experiment_units'), { 'ab/patient': TASKS, 'ab/strict': TASKS })
  const made = TASKS * calls.length
  assert.deepEqual(await gateway.sums('breakwater_experiment_calls_total', 'assigned', 'experiment="ab"'), {
    unit: 2 * made,
    excluded: made,
  })
  const { leftOut } = (await gateway.admin<{ leftOut: unknown }>('/admin/experiments/ab')).body
  assert.deepEqual(leftOut, { calls: made, why: 'they named no arm of the experiment, or no task (intent)' })
})

test('an experiment that has ended keeps its series while the config has it, and leaves none when it goes', async () => {
  const lines = async () =>
    (await (await fetch(`${gateway.control}/metrics`)).text())
      .split('\n')
      .filter((line) => /arm="|experiment="/.test(line))
  await gateway.reconfigure(parts(server.url, [{ ...experiment, active: false }]))
  await until(
    'the experiment has ended',
    async () => (await gateway.metric('breakwater_experiment_running')) === 0,
  )
  const kept = await lines()
  assert.ok(kept.some((line) => line.startsWith('breakwater_tool_calls_total')))
  assert.ok(!kept.some((line) => line.startsWith('breakwater_breaker_state')), 'no breaker state is left')
  await gateway.reconfigure(parts(server.url, []))
  await until('the series of the experiment are gone', async () => (await lines()).length === 0)
})

test('without an experiment no series has an arm, whatever agents ask for', async () => {
  const plain = await start([])
  await drive(plain, 1, new Map(arms.map((arm) => [arm, { calls: 0, rejected: 0 }])))
  await until('the tasks are over', async () => (await plain.metric('breakwater_intents_open')) === 0)
  const text = await (await fetch(`${plain.control}/metrics`)).text()
  assert.match(text, /^breakwater_upstream_attempts_total\{.*\} [1-9]/m)
  assert.doesNotMatch(text, /\barm=|^breakwater_experiment_\w+\{/m)
})
