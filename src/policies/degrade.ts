import { LRUCache } from 'lru-cache'
import { z } from 'zod'
import {
  type Call,
  type CallRecord,
  derive,
  type HasAlternative,
  type Layer,
  type Outcome,
  type Service,
  type Verdict,
} from '../mesh/call.ts'
import { isFailure, isRepeatable } from '../mesh/classify.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, isGatewayError, type Reason } from '../mesh/errors.ts'
import type { Policy, Scope } from '../mesh/policy.ts'
import { noteSupersededRejection } from '../mesh/record.ts'
import { TimeLimit } from '../mesh/time-limit.ts'
import { locate } from '../protocol/json-span.ts'
import { isObject, paramsOf, parseJson, resultText } from '../protocol/jsonrpc.ts'
import { LargeMessage } from '../protocol/large-message.ts'
import { duration, roundedDuration } from '../units/duration.ts'
import { size } from '../units/size.ts'
import type { idempotencyConflict } from './idempotency/stored-outcome.ts'
import { isFinal, isTask } from './state/final-result.ts'
import { inTurn } from './state/in-turn.ts'
import { argumentsOf, digestOf, identityOf } from './state/sameness.ts'

const fallback = z
  .strictObject({
    tool: z
      .string()
      .min(1)
      .max(256)
      .describe("The other tool, by its server's name for it. It gets the same arguments."),
    server: z.string().min(1).optional().describe('The server of the other tool, if different.'),
  })
  .describe(
    'Another tool that answers instead. Two tools may back each other up: a call never returns to a tool that has failed it, and asks three fallbacks at most. If none answers, the agent gets the failure of the original tool. The original tool has three quarters of the remaining time, or all of it if no list has the fallback.',
  )

const lastKnownGood = z
  .strictObject({
    maxAge: duration({ min: 1_000 }).default(300_000).describe('The maximum age of a repeated answer.'),
    maxEntries: z.int().min(1).max(100_000).default(100).describe('Most answers kept per tool.'),
    maxSize: size()
      .default(1024 ** 2)
      .describe('Most bytes of answers kept per tool.'),
  })
  .describe(
    "The tenant's last good answer to the same arguments and forwarded headers; only for tools known to be read-only. `Authorization` makes no difference, as no server gets it.",
  )

const fixed = z
  .strictObject({
    text: z.string().max(100_000).optional().describe('Text for the agent.'),
    structuredContent: z
      .record(z.string(), z.unknown())
      .optional()
      .describe("A result; must fit the tool's `outputSchema`, if any."),
  })
  .refine(({ text, structuredContent }) => text !== undefined || structuredContent !== undefined, {
    error: 'needs "text" or "structuredContent"',
  })
  .describe('A fixed answer.')

const schema = z
  .strictObject({
    fallback: fallback.optional(),
    lastKnownGood: lastKnownGood.optional(),
    static: fixed.optional(),
    notice: z
      .boolean()
      .default(true)
      .describe('Whether a text block also tells the model about the degraded answer.'),
  })
  .refine((ways) => ways.fallback ?? ways.lastKnownGood ?? ways.static, {
    error: 'needs at least one of "fallback", "lastKnownGood" and "static"',
  })
  .describe('Answers a failed tool call in another way, and says so: `fallback`, `lastKnownGood`, `static`.')

/** Gives a worse answer instead of none, and flags the answer as partial. Tries the configured ways in order. */
export const degrade: Policy<z.output<typeof schema>> & { schema: typeof schema; optIn: true } = {
  schema,
  use: 'Use it for tools where an older or simpler answer helps the agent more than an error, such as searches and lookups. Do not use it for tools that write, or where an agent would act on stale data as if current.',
  optIn: true,
  decisionIn(outcome) {
    const source = outcome.kind === 'answered' ? outcome.partial?.source : undefined
    return source === 'fallback' || source === 'stale' ? { decision: 'served', reason: source } : undefined
  },
  build(config, context, scope): Layer {
    const { set, server, tool } = scope
    const { notice } = config
    const fallback = config.fallback && toFallback(config.fallback, scope, notice)
    const stale =
      config.lastKnownGood &&
      staleAnswers(
        context.state.get({ kind: 'last-known-good', set, server, tool }, () => new LastKnownGood()),
        config.lastKnownGood,
        context.clock,
        scope,
        notice,
      )
    const last = config.static && prepared(config.static, notice)
    return (inner) => {
      const next = fallback === undefined ? inner : leavingTime(context.clock, inner, fallback.isThere)
      return async (call) => {
        const { record } = call
        if (call.tool === undefined) return next(call)
        const outer = record.hasAlternative
        const hasAtHand: HasAlternative = (lost) =>
          last !== undefined || stale?.has(call) === true || outer?.(lost) === true
        record.hasAlternative = (lost) =>
          hasAtHand(lost) ||
          (fallback?.isThere(call) === true && (lost === 'tool' || fallback.server !== server))
        try {
          const { attempts } = record
          const outcome = await next(call)
          // All tools of a fallback chain share a record. An earlier tool's call may have been sent, and this tool's
          // call not.
          const failure = failureOf(call, outcome, scope, record.attempts > attempts)
          if (failure === undefined) {
            stale?.keep(call, outcome)
            return outcome
          }
          const instead = (other: Outcome): Outcome => {
            noteSupersededRejection(record, outcome)
            return other
          }
          // A stored or static answer may arrive at the very end of the deadline; another server's answer may not.
          if (fallback !== undefined && !call.signal.aborted) {
            record.hasAlternative = hasAtHand
            const other = await fallback.ask(call, failure)
            if (other !== undefined) return instead(other)
            if (isGone(call)) return outcome
          }
          const other = await (stale?.find(call, failure) ?? last?.(call, failure))
          return other === undefined ? outcome : instead(other)
        } finally {
          record.hasAlternative = outer
        }
      }
    }
  },
}

/** The part of the remaining time for a tool with a fallback: a hanging tool leaves the rest to the fallback. */
const OWN_PART = 3 / 4

function leavingTime(clock: Clock, next: Service, hasFallback: (call: Call) => boolean): Service {
  const limit = new TimeLimit(clock, Infinity)
  return (call) => {
    const { deadline, record } = call
    if (deadline === undefined || call.tool === undefined || !hasFallback(call)) return next(call)
    const now = clock.now()
    const ms = (deadline.at - now) * OWN_PART
    if (ms <= 0) return next(call)
    // Progress moves this limit along with the deadline.
    const longestMs = ((deadline.latest ?? deadline.at) - now) * OWN_PART
    const moves = deadline.latest === undefined ? {} : { latest: now + longestMs }
    const own = { ...deadline, at: now + ms, ...moves }
    const words = `no answer within ${roundedDuration(ms)}; the rest of the deadline is for the fallback`
    const tooLong = () => gatewayError('deadline_exceeded', words, { sent: record.sent })
    return limit.run(call, next, ms, tooLong, { deadline: own }, longestMs)
  }
}

/**
 * Failures that are passed on unchanged: caused by the caller, about its rights, or needed by the caller to continue.
 */
const notDegraded: ReadonlySet<string> = new Set<Reason | typeof idempotencyConflict.name>([
  'cancelled',
  'idempotency_conflict',
  'invalid_arguments',
  'session_lost',
  'upstream_forbidden',
  'upstream_unauthorized',
])

/** Longest server message to repeat, in characters. */
const WORDS = 200

/** Returns why a call needs another answer, as in "search/query failed: breaker open"; undefined otherwise. */
function failureOf(call: Call, outcome: Outcome, scope: Scope, wasSent: boolean): string | undefined {
  if (isTask(call)) return undefined
  const what = outcome.kind === 'answered' ? errorOf(outcome) : messageOf(call, outcome)
  if (what === undefined) return undefined
  const isUnclear = wasSent && outcome.kind === 'failed' && outcome.error.sent
  const mayHaveRun = isUnclear && !isRepeatable(scope.effectOf(call))
  return `${call.server}/${call.tool} failed: ${what}${mayHaveRun ? ' (the call may have run)' : ''}`
}

function isGone({ signal }: Call): boolean {
  return signal.aborted && isGatewayError(signal.reason) && signal.reason.reason === 'cancelled'
}

function messageOf(call: Call, { error }: Exclude<Outcome, { kind: 'answered' }>): string | undefined {
  return notDegraded.has(error.reason) || isGone(call) ? undefined : error.message
}

function errorOf(outcome: Outcome & { kind: 'answered' }): string | undefined {
  if (!isFailure(outcome)) return undefined
  const { error } = outcome.result.value
  const words = isObject(error) && typeof error.message === 'string' ? error.message.slice(0, WORDS) : ''
  return words === '' ? 'the server answered with an error' : words
}

interface Fallback {
  readonly server: string
  /** Whether a call may go to the other tool, and the other server lists that tool. */
  isThere(call: Call): boolean
  /** Calls the other tool. Resolves to its flagged answer; undefined when it has no usable answer. */
  ask(call: Call, failure: string): Promise<Outcome | undefined>
}

/** Most fallbacks in a row. */
const MOST_IN_A_ROW = 3

/**
 * The tools (SERVER/TOOL) that failed earlier in a call's fallback chain. They are not called again, so two tools may
 * back each other up.
 */
const failedBefore = new WeakMap<CallRecord, readonly string[]>()

/** Sends the call to another tool, through all policies of that tool. */
function toFallback(
  { tool, server: named }: { readonly tool: string; readonly server?: string | undefined },
  scope: Scope,
  notice: boolean,
): Fallback {
  const server = named ?? scope.server
  const name = server === scope.server ? tool : `${server}/${tool}`
  const mayAsk = (call: Call) => {
    const before = failedBefore.get(call.record) ?? []
    if (before.length >= MOST_IN_A_ROW || before.includes(`${server}/${tool}`)) return false
    // A call that continues a server's earlier state means nothing to another tool.
    if (paramsOf(call.message.value).requestState !== undefined || isTask(call)) return false
    return server !== call.server || tool !== call.tool
  }
  return {
    server,
    isThere: (call) => mayAsk(call) && scope.isOffered(server, tool),
    async ask(call, failure) {
      const { record } = call
      const fallback = mayAsk(call) ? scope.fallbackCall(call, server, tool) : undefined
      if (fallback === undefined) return undefined
      const before = failedBefore.get(record)
      failedBefore.set(record, [...(before ?? []), `${call.server}/${call.tool}`])
      try {
        const outcome = await fallback.service(
          server === call.server ? asAnother(fallback.call) : fallback.call,
        )
        noteSupersededRejection(record, outcome)
        if (outcome.kind !== 'answered' || !isUsable(outcome)) return undefined
        const reason = reasonOf(name, failure, outcome)
        return { ...outcome, partial: { source: 'fallback', reason, notice } }
      } finally {
        failedBefore.set(record, before ?? [])
      }
    },
  }
}

/** Returns the call as another attempt, because an upstream session accepts each id only once. */
function asAnother(call: Call): Call {
  return derive(call, { attempt: call.attempt + 1 })
}

/** Returns whether an answer is usable. `input_required` is not: the caller would send its input to the failed tool. */
function isUsable({ result, verdict }: Outcome & { kind: 'answered' }): boolean {
  return verdict !== 'rpc_error' && verdict !== 'tool_error' && isFinal(result)
}

/** Returns why a fallback answers: a fallback may itself have failed over to another, and its answer may be partial. */
function reasonOf(name: string, failure: string, { partial }: Outcome & { kind: 'answered' }): string {
  if (partial?.source === 'fallback') return `${partial.reason}, and ${failure}`
  return `answered by ${name} because ${failure}${partial === undefined ? '' : `; and ${partial.reason}`}`
}

/** A good answer, as the JSON text of its result. */
interface Good {
  readonly result: string
  readonly bytes: number
  readonly verdict: Verdict
  readonly at: Millis
}

interface Limits {
  readonly maxAge: Millis
  readonly maxEntries: number
  /** Most bytes of answers to keep. */
  readonly maxSize: number
}

/**
 * The last good answers of a tool; the oldest are dropped first. `put` gets the limits, because reloads may change
 * them.
 */
export class LastKnownGood {
  readonly #answers = new LRUCache<string, Good>({
    maxSize: Number.MAX_SAFE_INTEGER,
    sizeCalculation: ({ bytes }) => bytes,
  })

  /** Returns the answer for a key, whatever its age. */
  get(key: string): Good | undefined {
    return this.#answers.peek(key)
  }

  put(key: string, good: Good, { maxEntries, maxSize }: Limits): void {
    if (good.bytes > maxSize) this.drop(key)
    else this.#answers.set(key, good)
    while (this.#answers.size > maxEntries || this.#answers.calculatedSize > maxSize) this.#answers.pop()
  }

  /** Drops an answer because a later answer for the key is too large to keep. */
  drop(key: string): void {
    this.#answers.delete(key)
  }

  snapshot() {
    return { answers: this.#answers.size, bytes: this.#answers.calculatedSize }
  }
}

/** Returns the result's size in a message of raw bytes; 0 when unknown. */
function sizeOf(message: LargeMessage): number {
  const [result] = message.locate(['result']) ?? []
  return result === undefined ? 0 : result.end - result.start
}

/** Keeps the good answers of read-only tools, and finds them again for the same arguments and identity. */
function staleAnswers(answers: LastKnownGood, limits: Limits, clock: Clock, scope: Scope, notice: boolean) {
  function goodFor(call: Call): Good | undefined {
    if (scope.effectOf(call) !== 'read_only') return undefined
    const good = answers.get(keyOf(call))
    return good !== undefined && clock.now() - good.at <= limits.maxAge ? good : undefined
  }

  return {
    keep(call: Call, outcome: Outcome): void {
      if (!isGood(call, outcome) || scope.effectOf(call) !== 'read_only') return
      const { result, verdict } = outcome
      // Reading a large text only to find out its size would take a while.
      if (LargeMessage.is(result) && sizeOf(result) > limits.maxSize) return answers.drop(keyOf(call))
      const span = locate(result.text, ['result'])
      if (span === undefined) return
      const text = result.text.slice(span.start, span.end)
      const bytes = Buffer.byteLength(text)
      answers.put(keyOf(call), { result: text, bytes, verdict, at: clock.now() }, limits)
    },

    has: (call: Call): boolean => goodFor(call) !== undefined,

    find(call: Call, failure: string): Outcome | Promise<Outcome> | undefined {
      const good = goodFor(call)
      if (good === undefined) return undefined
      const ageMs = clock.now() - good.at
      return inTurn(good.result.length, call, (): Outcome => {
        const text = resultText(call.id, good.result)
        const value = parseJson(text) as Call['message']['value']
        const reason = `this answer is ${roundedDuration(ageMs)} old, because ${failure}`
        return {
          kind: 'answered',
          result: { text, value, status: 200 },
          verdict: good.verdict,
          partial: { source: 'stale', reason, notice },
        }
      })
    },
  }
}

/** Returns the key of an answer; includes the era, because results have another shape in each era. */
function keyOf(call: Call): string {
  return digestOf(call.tool ?? '', argumentsOf(call), identityOf(call), call.caller.era)
}

function isGood(call: Call, outcome: Outcome): outcome is Outcome & { kind: 'answered' } {
  if (outcome.kind !== 'answered' || outcome.partial !== undefined) return false
  if (outcome.verdict !== 'correct' && outcome.verdict !== 'unchecked') return false
  return isObject(outcome.result.value.result) && !isTask(call) && isFinal(outcome.result)
}

/**
 * Returns a function that gives the operator's prepared answer. Without `text`, the text is the structured content as
 * JSON.
 */
export function prepared(
  {
    text,
    structuredContent,
  }: {
    readonly text?: string | undefined
    readonly structuredContent?: Readonly<Record<string, unknown>> | undefined
  },
  notice: boolean,
): (call: Call, failure: string) => Outcome {
  const content = [{ type: 'text', text: text ?? JSON.stringify(structuredContent) }]
  const result = structuredContent === undefined ? { content } : { content, structuredContent }
  const json = JSON.stringify(result)
  return ({ id }, failure) => ({
    kind: 'answered',
    result: { text: resultText(id, json), value: { jsonrpc: '2.0', id, result }, status: 200 },
    verdict: 'unchecked',
    partial: { source: 'fallback', reason: `a prepared answer, because ${failure}`, notice },
  })
}
