import { LRUCache } from 'lru-cache'
import { z } from 'zod'
import type { Call, Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { parseJson, resultText, paramsOf } from '../../protocol/jsonrpc.ts'
import { duration, roundedDuration } from '../../units/duration.ts'
import { size } from '../../units/size.ts'
import { comparable } from '../decide/call-key.ts'
import { joined } from '../decide/decide.ts'
import { ENDED, resultIn, type FaultType, type Injection } from '../fault.ts'
import { clockSkew } from './clock-skew.ts'
import { drift, partial, splitBrain } from './drift.ts'
import { json } from './shared.ts'
import { changing, textResult, type ToolResult, blocksOf } from './tool-result.ts'

const isErrorSchema = z.strictObject({
  text: z.string().min(1).default('The request could not be completed.').describe('The text of the error.'),
})

/** The tool has run: only its answer changes. */
const isError: FaultType<z.output<typeof isErrorSchema>> = {
  schema: isErrorSchema,
  family: 'result',
  about: 'The tool reports failure.',
  use: 'To see how an agent handles a tool that reports failure.',
  seen: '`isError: true` with the text.',
  containedBy: {
    policies: [],
    how: 'The agent sees the error and can decide by itself; degrade does not treat the reply as a failure.',
  },
  sides: ['upstream', 'client'],
  example: {
    name: 'is-error',
    rate: 0.1,
    ttl: '10m',
    match: { server: 'search' },
    text: 'The index is locked.',
  },
  layer: ({ text }, injection) =>
    changing(injection, (result) => ({
      result: { ...textResult(result, text), isError: true },
      note: { text },
    })),
}

const errorAsSuccessSchema = z.strictObject({
  of: z
    .enum(['errors', 'every_reply'])
    .default('errors')
    .describe(
      '`errors`: an error becomes a success. `every_reply`: a good reply also becomes an error text, ' +
        'not marked as an error.',
    ),
  text: z.string().optional().describe('The text of the reply; without it, `OK`, or an error text.'),
})

const errorAsSuccess: FaultType<z.output<typeof errorAsSuccessSchema>> = {
  schema: errorAsSuccessSchema,
  family: 'result',
  about: 'An error that looks like a success.',
  use: 'To find out whether an agent notices an unmarked error.',
  seen: 'An apparent success.',
  containedBy: {
    policies: ['verdict'],
    how: 'verdict notices the error if the tool has an outputSchema that the text breaks.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'as-success', rate: 0.05, ttl: '10m', match: { server: 'search' }, of: 'every_reply' },
  layer: ({ of, text }, injection) => {
    const ofGood = changing(injection, (result) =>
      of === 'errors'
        ? 'the reply is no error'
        : { result: textResult(result, text ?? 'Error: the request failed'), note: { was: 'a good reply' } },
    )
    return (next) => (call) =>
      next(call).then((outcome) => {
        const was = errorIn(outcome)
        if (was === undefined) return ofGood(() => Promise.resolve(outcome))(call)
        if (injection.released.aborted || call.signal.aborted) {
          injection.notReached(injection.released.aborted ? ENDED : 'the call was aborted')
          return outcome
        }
        injection.note({ was })
        return injection.change(
          answer(call, outcome),
          textResult(envelope(call, outcome, injection), text ?? 'OK'),
        )
      })
  },
}

/** Returns the kind of error in an outcome; undefined when there is no error. */
function errorIn(outcome: Outcome): string | undefined {
  if (outcome.kind !== 'answered') return outcome.error.reason
  if (outcome.verdict === 'rpc_error') return 'rpc_error'
  return resultIn(outcome)?.isError === true ? 'tool_error' : undefined
}

/** Returns the outcome if it is an answer, or else an empty answer in its place. */
function answer(call: Call, outcome: Outcome): Outcome {
  if (outcome.kind === 'answered') return outcome
  const text = resultText(call.id, '{}')
  return {
    kind: 'answered',
    result: { text, value: parseJson(text) as Record<string, unknown>, status: 200 },
    verdict: 'unchecked',
  }
}

/**
 * Returns the result in the outcome, or the fields of an empty result: in the modern era, each result says that it is
 * complete.
 */
function envelope(call: Call, outcome: Outcome, injection: Injection): Readonly<Record<string, unknown>> {
  const modern = injection.faultEnvironment.kindOf(call)?.era === 'modern'
  return resultIn(outcome) ?? (modern ? { resultType: 'complete' } : {})
}

/** How many replies a fault remembers; the oldest are forgotten first. */
const MOST = 256

/** Longest reply to remember, in characters. */
const LONGEST = 64 * 1024

interface Earlier {
  readonly group: string
  readonly text: string
  readonly at: Millis
}

/**
 * Remembers the first reply to each call. The key of a call includes the tenant, so no tenant ever sees another
 * tenant's reply.
 */
class Replies {
  readonly #byKey = new LRUCache<string, Earlier>({ max: MOST })

  /** Returns the earlier reply to the same call; remembers this reply if it is the first. */
  first(key: string, reply: Earlier): Earlier | undefined {
    const known = this.#byKey.peek(key)
    if (known !== undefined || reply.text.length > LONGEST) return known
    this.#byKey.set(key, reply)
    return undefined
  }

  /** Returns other replies of the same tool, oldest first. */
  unlike({ group, text }: Earlier): Earlier[] {
    const others: Earlier[] = []
    this.#byKey.rforEach((earlier) => {
      if (earlier.group === group && earlier.text !== text) others.push(earlier)
    })
    return others
  }
}

interface Seen {
  readonly replies: Replies
  readonly now: Earlier
  /** The first reply to the same call; undefined when this is the first. */
  readonly same: Earlier | undefined
}

/**
 * Returns this reply with the replies before it, or the reason why this reply cannot be remembered. Errors are not
 * remembered: an error holds no data.
 */
function seen(injection: Injection, call: Call, result: ToolResult): Seen | string {
  if (result.isError === true) return 'the reply is an error of the tool'
  const args = comparable(paramsOf(call.message.value).arguments ?? {})
  if (args === undefined) return 'the arguments nest too deep'
  const group = joined(call.tenant, call.server, call.tool ?? '')
  const now = { group, text: JSON.stringify(result), at: injection.clock.now() }
  const replies = injection.memory('replies', () => new Replies())
  return { replies, now, same: replies.first(joined(group, args), now) }
}

const staleSchema = z.strictObject({
  age: duration().default(0).describe('The minimum age of a reply.'),
})

/** Replaces a reply by the first reply to the same call that the fault has hit since arming. */
const stale: FaultType<z.output<typeof staleSchema>> = {
  schema: staleSchema,
  family: 'result',
  about: 'The agent gets an earlier reply to the same call, although the reply has changed since.',
  use: 'To find out how an outdated answer affects an agent, as from a lagging replica.',
  seen: 'An earlier answer to the same question.',
  containedBy: {
    policies: [],
    how: 'No check of a single reply can notice the fault; only its counter `escaped` shows it.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'stale', rate: 0.05, ttl: '10m', match: { server: 'search' }, age: '1m' },
  layer: ({ age }, injection) =>
    changing(injection, (result, call) => {
      const found = seen(injection, call, result)
      if (typeof found === 'string') return found
      const { now, same } = found
      if (same === undefined) return 'no earlier reply to the same call'
      const ageMs = now.at - same.at
      if (ageMs < age) return `the earlier reply to the same call is ${roundedDuration(ageMs)} old only`
      if (same.text === now.text) return 'the reply has not changed since'
      return { result: JSON.parse(same.text) as ToolResult, note: { ageMs } }
    }),
}

const wrongEntitySchema = z.strictObject({})

/** Remembers each hit reply, and uses it as the wrong answer to a later call. */
const wrongEntity: FaultType<z.output<typeof wrongEntitySchema>> = {
  schema: wrongEntitySchema,
  family: 'result',
  about: 'The agent gets the reply to an earlier call of the same tool with other arguments.',
  use: 'To find out whether anybody checks that an answer belongs to the question, as after a mix-up of cache keys.',
  seen: 'The answer to another question.',
  containedBy: {
    policies: [],
    how: 'No check of a single reply can notice the fault; only its counter `escaped` shows it.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'wrong-entity', rate: 0.05, ttl: '10m', match: { server: 'search' } },
  layer: (_, injection) =>
    changing(injection, (result, call) => {
      const found = seen(injection, call, result)
      if (typeof found === 'string') return found
      const others = found.replies.unlike(found.now)
      const other = others[Math.floor(injection.draw('entity') * others.length)]
      if (other === undefined) return 'no earlier reply to other arguments'
      return { result: JSON.parse(other.text) as ToolResult, note: { ageMs: found.now.at - other.at } }
    }),
}

const emptySchema = z.strictObject({
  form: z
    .enum(['no_content', 'empty_text'])
    .default('no_content')
    .describe('No content block at all, or a block with empty text.'),
})

const empty: FaultType<z.output<typeof emptySchema>> = {
  schema: emptySchema,
  family: 'result',
  about: 'An empty reply.',
  use: 'To see whether an agent reads no data as "nothing found".',
  seen: 'An empty result.',
  containedBy: {
    policies: ['verdict'],
    how: 'verdict notices the reply if the tool has an outputSchema that an empty result breaks.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'empty', rate: 0.05, ttl: '10m', match: { server: 'search' } },
  layer: ({ form }, injection) =>
    changing(injection, (result) => {
      const none = { ...textResult(result, ''), ...(form === 'no_content' ? { content: [] } : {}) }
      const structured = result.structuredContent === undefined ? {} : { structuredContent: {} }
      return { result: { ...none, ...structured }, note: { form } }
    }),
}

const oversizeSchema = z.strictObject({
  bytes: size()
    .default(10 * 1024 ** 2)
    .describe('By how much the reply grows.'),
})

const oversize: FaultType<z.output<typeof oversizeSchema>> = {
  schema: oversizeSchema,
  family: 'result',
  about: 'A far too long reply.',
  use: "To test size limits, and how a huge answer affects an agent's context.",
  seen: 'A reply with `bytes` more bytes, or an error where the size limit for replies is smaller.',
  containedBy: {
    policies: [],
    how: "The size limit for the server's replies refuses the reply, if the limit is smaller.",
  },
  sides: ['upstream', 'client'],
  example: { name: 'oversize', rate: 0.01, ttl: '10m', match: { server: 'search' }, bytes: '10MiB' },
  layer: ({ bytes }, injection) => {
    const grow = changing(injection, (result) => ({
      result: { ...result, content: [...blocksOf(result), { type: 'text', text: 'x'.repeat(bytes) }] },
      note: { bytes },
    }))
    if (injection.side === 'client') return grow
    // Reads the longer reply like a server's reply, because reading enforces the size limit.
    return (next) => (call) =>
      next(call).then((whole) =>
        grow(() => Promise.resolve(whole))(call).then((grown) =>
          grown === whole ? whole : reread(injection, call, grown),
        ),
      )
  },
}

function reread(injection: Injection, call: Call, outcome: Outcome): Outcome {
  if (outcome.kind !== 'answered') return outcome
  const { text, status } = outcome.result
  return injection.reply(call, json(text, status))
}

/** Faults that make a reply wrong. */
export const resultFaults = {
  'result.is_error': isError,
  'result.error_as_success': errorAsSuccess,
  'result.empty': empty,
  'result.drift': drift,
  'result.partial': partial,
  'result.wrong_entity': wrongEntity,
  'result.stale': stale,
  'result.split_brain': splitBrain,
  'result.oversize': oversize,
  'result.clock_skew': clockSkew,
} as const
