import type { Fault } from '../chaos/plan/common.ts'
import { Cancellation, never } from '../mesh/cancel.ts'
import { resultOfCall, type Result, wentWrong } from '../mesh/classify.ts'
import type { Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { createKeyedRandom, type Seed } from '../mesh/keyed-random.ts'
import { rejectionsIn } from '../mesh/record.ts'
import { retries } from '../policies/retry/tries.ts'
import type { RecordedCall } from '../telemetry/recording/format.ts'
import { SimulatedGateway } from './gateway.ts'
import { type IdleFaults, idleFaults } from './idle-faults.ts'
import type { PolicyChoice } from './policy-choices.ts'
import { argumentsOf, RecordedServers } from './recorded-servers.ts'
import type { Recording } from './recording.ts'
import type { Json } from './servers.ts'
import { VirtualClock } from './virtual-clock.ts'

/** The outcome of a call, recorded or replayed. */
export interface PlayedCall {
  /** Start, in milliseconds after the recording began. */
  readonly at: Millis
  readonly result: Result
  /** True if the call went wrong for the agent. */
  readonly isWrong: boolean
  readonly tookMs: Millis
  readonly attempts: number
  readonly retries: number
  /** Reasons of the rejections of the call and of its tries. */
  readonly rejections: readonly string[]
}

export interface Play {
  /** The played calls, by index of the recorded call. */
  readonly calls: readonly PlayedCall[]
  /** Share of the attempts drawn without a recorded counterpart. */
  readonly drawn: number
  /** Added faults that hit no call. */
  readonly idle: IdleFaults
}

/** Returns the recorded calls as a play. */
export function playOf({ calls }: Pick<Recording, 'calls'>): Play {
  return {
    calls: calls.map((call) => ({
      at: call.at,
      result: call.result,
      isWrong: call.wrong === true,
      tookMs: call.tookMs,
      attempts:
        call.attempts.filter(({ outcome }) => outcome !== 'rejected').length + (call.moreAttempts ?? 0),
      retries: call.retries,
      rejections: [
        ...(call.result === 'rejected' && call.reason !== undefined ? [call.reason] : []),
        ...(call.rejectedTries ?? []),
      ],
    })),
    drawn: 0,
    idle: new Map(),
  }
}

export interface ReplayOptions {
  readonly choice: PolicyChoice
  readonly seed: Seed
  /** Faults that are armed during the whole replay. */
  readonly faults?: readonly Fault[]
  readonly onCall?: () => void
}

/**
 * Replays the calls of a recording under a policy choice, on a virtual clock. Independent calls start at their recorded
 * times, whatever the outcomes of earlier calls. A call that followed the end of another call of the task starts as
 * long after that end as in the recording. The gateway's own recorded time is added to each call. An agent that gave up
 * a call waits as long as in the recording.
 */
export async function replay(
  { calls, header }: Pick<Recording, 'calls' | 'header'>,
  { choice, seed, faults = [], onCall }: ReplayOptions,
): Promise<Play> {
  const clock = new VirtualClock(Date.parse(header.startedAt))
  const byArguments = new Map<object, RecordedCall>()
  const asked = calls.map((call): Json => {
    const args = argumentsOf(call)
    byArguments.set(args, call)
    return args
  })
  const servers = new RecordedServers({
    calls,
    callOf: (args) => byArguments.get(args),
    random: createKeyedRandom(seed),
    now: () => clock.now(),
  })
  const { policies, set } = choice
  const gateway = new SimulatedGateway({
    clock,
    seed,
    servers: servers.models,
    policies,
    ...(set !== undefined && { set }),
    ...(faults.length > 0 && { plan: { seed, faults } }),
  })
  const before = predecessors(calls)
  const played: Promise<PlayedCall>[] = []

  async function play(call: RecordedCall, index: number): Promise<PlayedCall> {
    const first = before[index]
    if (first !== undefined) await played[first]
    const waitMs = first === undefined ? call.at - clock.now() : call.at - endOf(calls[first]!)
    if (waitMs > 0) await clock.sleep(waitMs, never)
    const signal = new Cancellation()
    const leave =
      call.result === 'cancelled' &&
      clock.after(call.tookMs - call.overheadMs, () =>
        signal.abort(gatewayError('cancelled', 'the caller gave up', { sent: true })),
      )
    const { server, tool, task, step, tenant } = call
    const beganAt = clock.now()
    const { call: sent, outcome } = await gateway.call({
      server,
      tool,
      tenant,
      args: asked[index]!,
      intent: task ?? `call ${index}`,
      ...(step !== undefined && { step }),
      signal,
    })
    if (leave !== false) leave()
    if (call.overheadMs > 0) await clock.sleep(call.overheadMs, never)
    onCall?.()
    const { record } = sent
    return {
      at: beganAt,
      result: resultOfCall(outcome, record),
      isWrong: wentWrong(outcome, record),
      tookMs: clock.now() - beganAt,
      attempts: record.attempts,
      retries: retries.of(record),
      rejections: rejectionsIn(record, outcome),
    }
  }

  calls.forEach((call, index) => played.push(play(call, index)))
  const over = await clock.run(Promise.all(played))
  const drawn = servers.attempts === 0 ? 0 : servers.drawn / servers.attempts
  return { calls: over, drawn, idle: idleFaults(gateway) }
}

const endOf = ({ at, tookMs }: RecordedCall): Millis => at + tookMs

/**
 * Returns for each call the index of its predecessor: the call of the same task that ended last before it began.
 * Undefined when no call had ended. An agent reacts to the outcome of the predecessor. The calls must be in order of
 * their start.
 */
function predecessors(calls: readonly RecordedCall[]): (number | undefined)[] {
  const byTask = new Map<string, number[]>()
  for (const [index, { task }] of calls.entries()) {
    if (task === undefined) continue
    const own = byTask.get(task)
    if (own === undefined) byTask.set(task, [index])
    else own.push(index)
  }
  const found = new Array<number | undefined>(calls.length).fill(undefined)
  for (const own of byTask.values()) {
    const byEnd = own.toSorted((a, b) => endOf(calls[a]!) - endOf(calls[b]!) || a - b)
    let ended = 0
    for (const index of own) {
      // Calls are in order of start, so an end before one call is also before the next call.
      while (byEnd[ended]! < index && endOf(calls[byEnd[ended]!]!) <= calls[index]!.at) ended++
      found[index] = byEnd[ended - 1]
    }
  }
  return found
}
