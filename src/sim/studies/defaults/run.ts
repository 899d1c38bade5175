import { wentWrong } from '../../../mesh/classify.ts'
import { Cancellation, never } from '../../../mesh/cancel.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { gatewayError } from '../../../mesh/errors.ts'
import { createKeyedRandom } from '../../../mesh/keyed-random.ts'
import type { Effect } from '../../../mesh/policy.ts'
import { SimulatedGateway } from '../../gateway.ts'
import type { PolicyChoice } from '../../policy-choices.ts'
import { lookup } from '../../scene.ts'
import type { Call } from '../../../mesh/call.ts'
import type { Condition, ToolModel } from '../../servers.ts'
import { quantile } from '../../statistics.ts'
import { VirtualClock } from '../../virtual-clock.ts'
import { isOffence, OFFENCE, type Offenders, type Row } from './rows.ts'

export interface Load {
  readonly agents: number
  /** Mean duration of a call, in milliseconds; calls take 0.5 to 1.5 times as long. */
  readonly callMs: Millis
  readonly effect: Effect
}

/** Measurements of a run, without offenders' tasks and calls. */
export interface Measured {
  readonly tasks: number
  readonly failedTasks: number
  readonly calls: number
  readonly failedCalls: number
  readonly attempts: number
  /** Attempts of all agents that found the server ill. */
  readonly illAttempts: number
  /** Calls of all agents between the first and the last illness. */
  readonly illCalls: number
  /** From the end of the illness to the end of the last failed call, in seconds. */
  readonly wellAfterS: number
  /** Percentiles of the durations of successful calls, in milliseconds. */
  readonly p50: Millis
  readonly p95: Millis
  /** Writes executed more than once. */
  readonly twice: number
}

/** Calls per task, and an agent's mean pause between two calls, in milliseconds. */
export const CALLS = 5
export const THINK_MS: Millis = 300

/** Timeout of an agent's call, in milliseconds: the default of the MCP SDKs. */
export const PATIENCE_MS: Millis = 60_000

/**
 * Time slot of a task, relative to the mean time of its calls and pauses. A task that takes longer than its slot delays
 * the agent's next task.
 */
export const SLACK = 1.15

/** Restart time of a process ended by a call, in milliseconds. */
export const RESTART_MS: Millis = 1_000

const SERVER = 'server'
const TOOL = 'read'

/** The separate tool of offences. */
const ELSEWHERE = 'elsewhere'

/**
 * Runs agents with a fixed number of tasks each, one call at a time. A failed call fails its task. Resolves to the
 * measurements.
 */
export async function run(row: Row, load: Load, choice: PolicyChoice, seed: number): Promise<Measured> {
  const clock = new VirtualClock()
  const random = createKeyedRandom(seed)
  /** Executions of each call, by id. */
  const ranOf = new Map<Call['id'], number>()
  const { offenders, callMs = load.callMs } = row
  let awayUntil = -Infinity
  let illAttempts = 0
  const isIll = (now: Millis) => now >= row.ill[0] * 1_000 && now < row.ill[1] * 1_000
  const tools = [TOOL, ...Array.from({ length: (row.tools ?? 1) - 1 }, (_, nth) => `${TOOL}-${nth + 2}`)]
  const offended = offenders?.isElsewhere === true ? ELSEWHERE : TOOL
  const { policies, set } = choice
  const gateway: SimulatedGateway = new SimulatedGateway({
    clock,
    seed,
    policies,
    ...(set !== undefined && { set }),
    servers: {
      [SERVER]: {
        ...(row.replicas !== undefined && { replicas: row.replicas }),
        tools: Object.fromEntries([...new Set([...tools, offended])].map((tool) => [tool, modelOf(tool)])),
        condition(replica, now, call) {
          const condition = conditionOf(replica, now, call)
          if (call !== undefined && condition.is !== 'well') illAttempts++
          return condition
        },
      },
    },
  })

  function modelOf(tool: string): ToolModel {
    const { outputSchema, ...plain } = lookup(tool)
    return {
      ...plain,
      ...(row.isPlain !== true && { outputSchema }),
      effect: load.effect,
      tookMs(call, draw) {
        ranOf.set(call.id, (ranOf.get(call.id) ?? 0) + 1)
        return callMs * (0.5 + draw('run'))
      },
    }
  }

  function conditionOf(replica: number, now: Millis, call: Call | undefined): Condition {
    if (now < awayUntil) return { is: 'away' }
    if (call === undefined || offenders === undefined || !isOffence(call))
      return row.condition(replica, now, random)
    const met = offenders.meets(String(call.id), random)
    if (met.is !== 'ends') return met
    awayUntil = now + RESTART_MS
    server.drop(replica)
    return { is: 'resets' }
  }

  const server = gateway.servers.get(SERVER)!
  for (const [atS, replica] of row.drops ?? []) clock.after(atS * 1_000, () => server.drop(replica))
  await clock.run(gateway.prepare())

  let [tasks, failedTasks, calls, failedCalls, attempts, illCalls, lastFailedAt] = [0, 0, 0, 0, 0, 0, 0]
  const took: Millis[] = []

  /** Makes a call of an agent. Resolves to true if the call was good. */
  async function ask(tool: string, service: string, intent: string, isCounted: boolean): Promise<boolean> {
    const since = clock.now()
    if (isIll(since)) illCalls++
    const signal = new Cancellation()
    const cancel = clock.after(PATIENCE_MS, () =>
      signal.abort(gatewayError('cancelled', 'the agent gave up', { sent: true })),
    )
    const args = { service }
    const { call, outcome: ended } = gateway.begin({ server: SERVER, tool, args, intent, signal })
    const outcome = await ended
    cancel()
    // A wrong reply counts as a failure, even if the agent does not notice.
    const isTrue = outcome.kind === 'answered' && server.answered(outcome.result, tool, args)
    const isBad = !isTrue || wentWrong(outcome, call.record)
    if (!isCounted) return !isBad
    calls++
    attempts += call.record.attempts
    if (isBad) {
      failedCalls++
      lastFailedAt = clock.now()
    } else took.push(clock.now() - since)
    return !isBad
  }

  const taskMs = CALLS * (callMs + THINK_MS) * SLACK
  const each = Math.max(1, Math.floor((row.lengthS * 1_000) / taskMs))

  /** Plays all tasks of an agent. `offend` says which of its calls are offences; undefined for no call. */
  async function work(agent: string, offend?: Offenders['offend']): Promise<void> {
    for (let task = 0; task < each; task++) {
      const key = `${agent}/${task}`
      const beginsAt = (task + random(key, 'arrival') * (SLACK - 1)) * taskMs
      if (beginsAt > clock.now()) await clock.sleep(beginsAt - clock.now(), never)
      let isWell = true
      for (let step = 0; step < CALLS && (isWell || offend === 'always'); step++) {
        const isOffence = offend === 'always' || (offend === 'sometimes' && step === 1 && task % 4 === 1)
        const tool = isOffence ? offended : tools[step % tools.length]!
        const service = isOffence ? OFFENCE : `service-${key}/${step}`
        isWell = await ask(tool, service, `task ${key}`, offend === undefined)
        if (isWell || offend === 'always')
          await clock.sleep(THINK_MS * (0.5 + random(`${key}/${step}`, 'think')), never)
      }
      if (offend !== undefined) continue
      tasks++
      if (!isWell) failedTasks++
    }
  }

  /** Makes an offence while the server is ill, without waiting for the answer. */
  async function die(agent: string): Promise<void> {
    const [fromS, toS] = row.ill
    await clock.sleep((fromS + random(agent, 'dies') * (toS - fromS)) * 1_000, never)
    if (isIll(clock.now())) illCalls++
    gateway.begin({ server: SERVER, tool: offended, args: { service: OFFENCE }, intent: agent })
  }

  if (offenders !== undefined)
    for (let nth = 0; nth < (offenders.agents ?? load.agents); nth++) {
      const agent = `offender-${nth}`
      void (offenders.offend === 'once' ? die(agent) : work(agent, offenders.offend))
    }
  await clock.run(Promise.all(Array.from({ length: load.agents }, (_, agent) => work(`${agent}`))))
  return {
    tasks,
    failedTasks,
    calls,
    failedCalls,
    attempts,
    illAttempts,
    illCalls,
    wellAfterS: Math.max(0, lastFailedAt / 1_000 - row.ill[1]),
    p50: quantile(took, 0.5),
    p95: quantile(took, 0.95),
    twice: load.effect === 'read_only' ? 0 : [...ranOf.values()].filter((runs) => runs > 1).length,
  }
}
