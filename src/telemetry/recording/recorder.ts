import { createHmac, randomBytes, randomInt } from 'node:crypto'
import type { Call, Outcome } from '../../mesh/call.ts'
import { ignore } from '../../mesh/cancel.ts'
import { attemptOutcomeOf, resultOfCall, type Result, verdictIn, wentWrong } from '../../mesh/classify.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { createKeyedRandom, type KeyedRandom } from '../../mesh/keyed-random.ts'
import type { Effect } from '../../mesh/policy.ts'
import { Slot } from '../../mesh/record.ts'
import { type FaultFate, faultFates } from '../../mesh/injected.ts'
import { IDEMPOTENCY_KEY } from '../../policies/idempotency.ts'
import { replayed } from '../../policies/idempotency/stored-outcome.ts'
import { retries } from '../../policies/retry/tries.ts'
import { canonicalJson } from '../../protocol/canonical-json.ts'
import { version } from '../../protocol/identity.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { byteLengthOf } from '../../protocol/large-message.ts'
import { metaOf } from '../../protocol/meta.ts'
import { stepOf } from '../../protocol/task.ts'
import { callsOf, type IntentOutcome, keyOf, type KnownIntent } from '../intents/intent.ts'
import type { Log } from '../log.ts'
import type { RecordingSettings } from '../schema.ts'
import { RecordingFile } from './file.ts'
import {
  type Effects,
  FORMAT,
  MAX_ATTEMPTS,
  MAX_FAULTS,
  type RecordedAttempt,
  type RecordedCall,
  type RecordedOutcome,
} from './format.ts'
import { type InArguments, TaskValues } from './task-values.ts'
import { answerIn, contentOf, isTooLarge, toldOf } from './told.ts'

/** Longest request whose arguments are part of the call's key, in characters; each longer request gets a unique key. */
const MAX_TEXT = 256 * 1024

/** Deepest nesting of arguments that are part of the call's key, in levels. */
const MAX_DEPTH = 100

export interface RecorderParts {
  readonly clock: Clock
  readonly log: Pick<Log, 'warn' | 'info'>
  readonly environment: string
  /** Returns the effect of running a call again, by the config in force. */
  readonly effectOf: (call: Call) => Effect
  /** Returns the effects of all known tools, by the config in force. */
  readonly effects: () => Effects
  /** Called with the number of recorded calls that will never be written. */
  readonly onDropped: (count: number) => void
}

/**
 * Records the results of tool calls and of each of their attempts, for replay under other policies (`breakwater sim`)
 * and for verdicts on agents (`breakwater judge`). Keeps no arguments, no text of replies and no names of tasks or
 * tenants. Outlives all generations of the config.
 */
export class Recorder {
  readonly #parts: RecorderParts
  /**
   * The current recording; undefined while recording is off. A plain field, so that calls cost little while recording
   * is off.
   */
  open: OpenRecording | undefined
  /** The file of the previous recording, because the next recording may have the same path. */
  #last: RecordingFile | undefined
  /** The settings and the policies' hash of the current recording; empty when recording is off. */
  #begunWith = ''

  constructor(parts: RecorderParts) {
    this.#parts = parts
  }

  /**
   * Applies new settings. Changed policies begin a new recording, because a recording has the same policies from start
   * to end. `policiesHash` identifies the policies. A call in progress at the change is in neither recording; the
   * recorder drops the call at its end.
   */
  follow(settings: RecordingSettings, policiesHash: string): void {
    const { log } = this.#parts
    const { file, sample } = settings
    const begunWith = file === undefined ? '' : JSON.stringify([settings, policiesHash])
    if (begunWith === this.#begunWith) return
    this.#begunWith = begunWith
    const before = this.open?.file ?? this.#last
    this.open = undefined
    this.#last = before
    if (file === undefined) {
      log.info('the recording of tool calls has ended')
      return void before?.close()
    }
    this.open = this.#begin({ ...settings, file }, policiesHash, before)
    log.info({ file, sample }, 'tool calls are recorded')
  }

  #begin(
    { file: path, maxSize, keep, sample }: RecordingSettings & { readonly file: string },
    policiesHash: string,
    after: RecordingFile | undefined,
  ): OpenRecording {
    const { clock, log, environment, effects, onDropped } = this.#parts
    const startedAt = new Date(clock.wall()).toISOString()
    const header = () => ({
      breakwaterRecording: FORMAT as typeof FORMAT,
      version,
      startedAt,
      environment,
      sample,
      policiesHash,
      servers: effects(),
    })
    const onError = (why: string) =>
      log.warn({ why, file: path }, 'the recording of tool calls cannot be written')
    const file = new RecordingFile({ path, maxSize, keep, clock, header, onError, onDropped, after })
    const key = randomBytes(32)
    const draw = createKeyedRandom(randomInt(2 ** 32))
    const digest = (...fields: readonly string[]) =>
      createHmac('sha256', key).update(JSON.stringify(fields)).digest('hex').slice(0, 16)
    return { file, sample, since: clock.now(), draw, digest, values: new TaskValues({ hash: draw, digest }) }
  }

  /** Begins a tool call, and decides if the call is recorded. The call's task must be set before. */
  begin(call: Call): void {
    const { open } = this
    if (open === undefined || !isChosen(unitOf(call), open)) return
    recording.note(call.record, { of: open, attempts: [], more: 0, inArguments: compared(call, open) })
  }

  /** Records the reported outcome of a task, unless the task is outside of the sample. */
  outcome(
    { source, tenant, id }: Pick<KnownIntent, 'source' | 'tenant' | 'id'>,
    outcome: IntentOutcome,
  ): void {
    const { open } = this
    const unit = keyOf(source, tenant, id)
    if (open === undefined || !isChosen(unit, open)) return
    const at = rounded(this.#parts.clock.now() - open.since)
    const line: RecordedOutcome = { task: open.digest('task', unit), outcome, at }
    open.file.append(JSON.stringify(line))
  }

  /** Begins an attempt of a recorded call. Returns a function to call with the attempt's outcome. */
  attempt(call: Call): (outcome: Outcome) => void {
    const { clock } = this.#parts
    const notes = recording.of(call.record)!
    if (notes.attempts.length >= MAX_ATTEMPTS) {
      notes.more++
      return ignore
    }
    const attempt: AttemptNotes = { call, beganAt: clock.now(), end: undefined }
    notes.attempts.push(attempt)
    return (outcome) => (attempt.end = { tookMs: clock.now() - attempt.beganAt, ...endOf(outcome, call) })
  }

  end(call: Call, outcome: Outcome, result: Result, tookMs: Millis, overheadMs: Millis): void {
    const { record } = call
    const { of, attempts, more, inArguments } = recording.of(record)!
    recording.note(record, undefined)
    const tool = call.tool ?? ''
    const { intent, arm, supersededRejections } = record
    const verdict = verdictIn(outcome)
    const step = stepOf(call)
    const effect = this.#parts.effectOf(call)
    const line: RecordedCall = {
      // At least 0, because a call may have arrived a moment before the recording began.
      at: rounded(Math.max(0, record.startedAt - of.since)),
      ...(intent !== undefined && { task: of.digest('task', unitOf(call)) }),
      ...(step !== undefined && { step }),
      key: of.digest('call', call.server, tool, ...(argumentsOf(call) ?? [randomBytes(16).toString('hex')])),
      server: call.server,
      tool,
      effect,
      tenant: of.digest('tenant', call.tenant),
      ...(arm !== '' && { arm }),
      result,
      ...(wentWrong(outcome, record) && { wrong: true }),
      ...(record.isInvalid && { invalid: true }),
      ...(verdict !== undefined && { verdict }),
      ...(outcome.kind !== 'answered' && { reason: outcome.error.reason }),
      ...(outcome.kind === 'rejected' && { by: outcome.by }),
      tookMs: rounded(tookMs),
      waitedMs: rounded(record.waitedMs),
      overheadMs: rounded(record.hasWaitedElsewhere ? 0 : overheadMs),
      retries: retries.of(record),
      ...(supersededRejections !== undefined && { rejectedTries: supersededRejections }),
      attempts: attempts.map((attempt) => attemptOf(attempt, call, this.#parts.clock.now())),
      ...(more > 0 && { moreAttempts: more }),
      ...(record.replica !== undefined && { replica: record.replica }),
      ...factsFor(call, outcome, effect, of),
      ...valuesIn(call, outcome, inArguments, of),
    }
    of.file.append(JSON.stringify(line))
  }

  /** Ends the recording. Resolves when all lines are written or have failed. Drops calls that end later. */
  async close(): Promise<void> {
    const file = this.open?.file ?? this.#last
    this.open = undefined
    await file?.close()
  }
}

interface OpenRecording {
  readonly file: RecordingFile
  readonly sample: number
  /** Start of the recording, on the monotonic clock. */
  readonly since: Millis
  /** The draws that choose the recorded tasks. */
  readonly draw: KeyedRandom
  readonly digest: (...fields: readonly string[]) => string
  readonly values: TaskValues
}

interface Notes {
  readonly of: OpenRecording
  readonly attempts: AttemptNotes[]
  /** Number of attempts beyond `MAX_ATTEMPTS`. */
  more: number
  /** The canaries in the arguments; undefined for a call without a task. */
  readonly inArguments: InArguments | undefined
}

/** The notes on a recorded call; undefined for other calls. */
export const recording = new Slot<Notes | undefined>(undefined)

type AttemptEnd = Omit<RecordedAttempt, 'number' | 'at' | 'server' | 'tool' | 'requestBytes'>

interface AttemptNotes {
  readonly call: Call
  readonly beganAt: Millis
  end: AttemptEnd | undefined
}

/** Returns the key of the task, or of a call without a task. All calls with this key are recorded, or none. */
function unitOf({ record: { intent, startedAt }, tenant, caller, id }: Call): string {
  return intent === undefined ? `${caller.id}\n${id}\n${startedAt}` : keyOf(intent.source, tenant, intent.id)
}

/** Whether a unit belongs to the sample. */
const isChosen = (unit: string, { sample, draw }: OpenRecording) =>
  sample >= 1 || draw(unit, 'recording') < sample

/** Returns the arguments, and the agent's answers to a server's questions; undefined when too large to compare. */
function argumentsOf({ message }: Call): string[] | undefined {
  if (message.text.length > MAX_TEXT) return undefined
  const { arguments: args = {}, inputResponses, requestState } = paramsOf(message.value)
  const isAnswer = inputResponses !== undefined || requestState !== undefined
  const parts = isAnswer ? [args, [inputResponses, requestState]] : [args]
  const texts = parts.flatMap((part) => canonicalJson(part, { maxDepth: MAX_DEPTH }) ?? [])
  return texts.length === parts.length ? texts : undefined
}

/** Looks for canaries in the arguments of a call that begins; undefined for a call without a task. */
function compared(call: Call, { values }: OpenRecording): InArguments | undefined {
  const { message, record } = call
  if (record.intent === undefined) return undefined
  const isFirst = callsOf(record.intent as KnownIntent) === 1
  const args = message.text.length > MAX_TEXT ? undefined : (paramsOf(message.value).arguments ?? {})
  return values.begin(unitOf(call), isFirst, args)
}

type Facts = Pick<RecordedCall, 'told' | 'idem' | 'replay' | 'replyKey' | 'faults'>

/** Returns the facts by which an agent is judged. */
function factsFor({ message, record }: Call, outcome: Outcome, effect: Effect, of: OpenRecording): Facts {
  const told = toldOf(outcome, effect)
  const content = contentOf(outcome)
  const fates = faultFates.of(record) ?? []
  return {
    ...(told !== undefined && { told }),
    ...(metaOf(message.value, 'params', IDEMPOTENCY_KEY) !== undefined && { idem: true }),
    ...(replayed.of(record) !== 'no' && { replay: true }),
    ...(content !== undefined && { replyKey: of.digest('reply', content) }),
    ...(fates.length > 0 && { faults: fates.slice(0, MAX_FAULTS).map(inShort) }),
  }
}

const inShort = ({ fault: { name, type, side }, fate }: FaultFate) => ({ name, type, side, fate })

type Values = Pick<RecordedCall, 'canaries' | 'moreCanaries' | 'uses' | 'clean' | 'unwatched'>

/** Returns the values of faults in the reply and in the arguments of a call that ends. */
function valuesIn(
  call: Call,
  outcome: Outcome,
  inArguments: InArguments | undefined,
  { values }: OpenRecording,
): Values {
  if (inArguments === undefined) return {}
  const fates = faultFates.of(call.record) ?? []
  const { uses } = inArguments
  const mute = fates.filter(({ fate, values }) => fate === 'escaped' && values === undefined).length
  const { canaries, more, clean, isUnwatched } = values.end(unitOf(call), {
    content: answerIn(outcome),
    isTooLarge: isTooLarge(outcome),
    isHarmed: fates.some(({ fate }) => fate === 'escaped' || fate === 'surfaced'),
    values: fates.flatMap(({ values = [] }) => values),
  })
  return {
    ...(canaries.length > 0 && { canaries: [...canaries] }),
    ...(more + mute > 0 && { moreCanaries: more + mute }),
    ...(uses.length > 0 && { uses: [...uses] }),
    ...(clean.length > 0 && { clean: [...clean] }),
    ...((inArguments.isUnwatched || isUnwatched) && { unwatched: true }),
  }
}

/**
 * Returns an attempt in the recorded form. `of`: the call of the attempt. An attempt in progress at the end of its call
 * counts as cancelled.
 */
function attemptOf({ call, beganAt, end }: AttemptNotes, of: Call, now: Millis): RecordedAttempt {
  const { tookMs, ...ended } = end ?? { tookMs: now - beganAt, outcome: 'cancelled' as const }
  const isElsewhere = call.server !== of.server || call.tool !== of.tool
  return {
    number: call.attempt,
    at: rounded(beganAt - call.record.startedAt),
    tookMs: rounded(tookMs),
    ...ended,
    ...(isElsewhere && { server: call.server, tool: call.tool ?? '' }),
    requestBytes: Buffer.byteLength(call.message.text),
  }
}

function endOf(outcome: Outcome, { record }: Call): Omit<AttemptEnd, 'tookMs'> {
  if (outcome.kind === 'answered') {
    const { result, verdict } = outcome
    const { error } = result.value
    return {
      outcome: attemptOutcomeOf(outcome, record),
      verdict,
      ...(isObject(error) && typeof error.code === 'number' && { code: error.code }),
      ...(result.status !== 200 && { status: result.status }),
      replyBytes: byteLengthOf(result),
    }
  }
  const verdict = verdictIn(outcome)
  const { reason, retryAfterMs, sent, status } = outcome.error
  return {
    outcome: resultOfCall(outcome, record),
    ...(verdict !== undefined && { verdict }),
    reason,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
    ...(!sent && { unsent: true }),
    ...(status !== undefined && { status }),
  }
}

const rounded = (ms: Millis) => Math.round(ms * 1_000) / 1_000
