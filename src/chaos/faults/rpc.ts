import { z } from 'zod'
import { derive, type Call, type CallResult, type Layer, type Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { edit, locate, splice } from '../../protocol/json-span.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import {
  HEADER_MISMATCH,
  MODERN_VERSION,
  PROTOCOL_VERSION_KEY,
  UNSUPPORTED_VERSION,
  LATEST_LEGACY,
  legacyVersions,
} from '../../protocol/versions.ts'
import { encodeEvent } from '../../protocol/sse.ts'
import { duration } from '../../units/duration.ts'
import { ENDED, NO_REPLY, type RawReply, type Injection, type FaultType, type ServerKind } from '../fault.ts'
import {
  BEGUN,
  diverted,
  endOf,
  errorBody,
  firstOf,
  givenUp,
  json,
  onAnswer,
  requests,
  sharesStream,
} from './shared.ts'

/** Returns the call's id as its sender wrote it: numbers that JavaScript would round keep all their digits. */
function rawId({ id, message: { text } }: Call): string {
  const span = locate(text, ['id'])
  return span === undefined ? JSON.stringify(id) : text.slice(span.start, span.end)
}

/** Returns the text of a reply with another id, given as JSON text. */
function withId(text: string, id: string): string {
  const span = locate(text, ['id'])
  return span === undefined ? text : splice(text, [edit(span, id)])
}

/**
 * Returns the outcome of a JSON-RPC error. Drops the raw bytes, because only the usual way of sending knows the agent's
 * own id, which may differ from the call's id.
 */
function refusal(call: Call, raw: RawReply, injection: Injection): Outcome {
  const { wire: _, ...outcome } = injection.reply(call, raw)
  return outcome
}

/**
 * Returns the call to send when its reply may be replaced later. On side client, a reply can be replaced only before
 * its first byte, so the stream to the agent opens with its first message.
 */
function unopened(call: Call, { side }: Injection): Call {
  if (side === 'upstream') return call
  return derive(call, { channel: diverted(call.channel, { open: () => undefined }) })
}

/** Returns the reply to break. When the reply cannot be broken, journals the reason and returns undefined. */
function breakable(call: Call, outcome: Outcome, injection: Injection): CallResult | undefined {
  if (injection.released.aborted) return void injection.notReached(ENDED)
  if (outcome.kind !== 'answered') return void injection.notReached(NO_REPLY)
  if (injection.side === 'client' && call.record.firstByteAt !== undefined)
    return void injection.notApplicable(BEGUN)
  return outcome.result
}

const errorSchema = z.strictObject({
  code: z.int().default(-32603).describe('The JSON-RPC code.'),
  message: z.string().max(4_096).default('Internal error').describe('The message.'),
  data: z.unknown().optional().describe('The data, any JSON; none by default.'),
})

/** A JSON-RPC error in place of a reply. The server never gets the call, but the error looks like the server's own. */
export const error = {
  schema: errorSchema,
  family: 'rpc',
  about: 'A JSON-RPC error in place of a reply.',
  use: 'To imitate a server that answers with its own errors, at a rate.',
  seen: 'Nothing when a retry succeeds, or the error, as if the server had sent it.',
  containedBy: {
    policies: ['retry'],
    how: 'A code that does not blame the caller counts as a failure of the server: retry repeats calls that only read.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  aliases: { 'mcp-chaos': ['error_injection', 'burst_error', 'server_degradation'] },
  example: {
    name: 'rpc-error',
    rate: 0.02,
    ttl: '10m',
    match: { server: 'search' },
    code: -32603,
    message: 'injected',
  },
  layer:
    ({ code, message, data }, injection) =>
    () =>
    (call) => {
      injection.note({ code })
      return Promise.resolve(refusal(call, json(errorBody(rawId(call), { code, message, data })), injection))
    },
} satisfies FaultType<z.output<typeof errorSchema>>

const malformedSchema = z.strictObject({
  kind: z
    .enum(['truncate', 'bad_json', 'wrong_content_type'])
    .default('truncate')
    .describe(
      'Keeps only the first half; adds a comma too many; or wraps the reply in a web page (HTTP only).',
    ),
})

/** The server runs the call, and the reply arrives as something other than a JSON-RPC response. */
export const malformed = {
  schema: malformedSchema,
  family: 'rpc',
  about: "The server's reply arrives broken: cut off, as no JSON, or as a web page.",
  use: 'To check that broken bytes never reach an agent.',
  seen: 'A clean error (BW_BAD_REPLY), or a timeout over stdio and HTTP+SSE if nothing identifies the call; never the bytes.',
  containedBy: {
    policies: ['attemptTimeout', 'retry'],
    how: 'The transport refuses what it cannot parse, or skips an answer that identifies no call: then the attempt timeout ends the wait. Calls that only read are retried.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  aliases: { 'chaos-monkey': ['malformed'] },
  example: { name: 'malformed', rate: 0.05, ttl: '10m', match: { server: 'search' }, kind: 'bad_json' },
  layer:
    ({ kind }, injection) =>
    (next) =>
    (call) => {
      if (sharesStream(call, injection)) return malformedAnswer(kind, injection)(next)(call)
      return next(unopened(call, injection)).then((outcome) => {
        const result = breakable(call, outcome, injection)
        if (result === undefined) return outcome
        injection.note({ kind })
        const text = result.text.trim()
        return injection.reply(
          call,
          kind === 'wrong_content_type' ? page(text, result.status) : json(broken(kind, text), result.status),
        )
      })
    },
} satisfies FaultType<z.output<typeof malformedSchema>>

type Malformed = z.output<typeof malformedSchema>['kind']

/** Returns a layer that replaces the answer by a broken line or event, which identifies no call. */
function malformedAnswer(kind: Malformed, injection: Injection): Layer {
  return (next) => {
    if (kind === 'wrong_content_type') {
      injection.notApplicable('only replies over HTTP have a content type')
      return next
    }
    return onAnswer((text) => {
      injection.note({ kind })
      return { texts: [broken(kind, text.trim())] }
    }, injection)(next)
  }
}

/** Returns a text that is no JSON: the first half of an object, or an object with a comma after its last member. */
function broken(kind: Exclude<Malformed, 'wrong_content_type'>, text: string): string {
  switch (kind) {
    case 'truncate':
      return text.slice(0, Math.floor(text.length / 2))
    case 'bad_json':
      return `${text.slice(0, -1)},}`
  }
}

function page(text: string, status: number): RawReply {
  return {
    status,
    headers: { 'content-type': 'text/html; charset=utf-8' },
    body: `<!doctype html><html><body><pre>${text}</pre></body></html>`,
  }
}

/**
 * Lets the gateway read a reply that no call waits for, and journals why the gateway discards the reply. The reply gets
 * a new id, because the caller's id could be the id of another call.
 */
function orphan(call: Call, { text, status }: CallResult, injection: Injection): void {
  const read = injection.faultEnvironment.read(
    call,
    json(withId(text, JSON.stringify(`${call.id}-over`)), status),
  )
  injection.note({ discarded: read.kind === 'answered' ? 'unread' : read.error.reason })
}

const identitySchema = z.strictObject({})

type IdentityConfig = z.output<typeof identitySchema>

/** The server runs the call and answers it under the id of a call that never existed. */
export const wrongId = {
  schema: identitySchema,
  family: 'rpc',
  about: "The server's reply carries the id of another request.",
  use: 'To check that no call can get the answer of another call.',
  seen: 'An error, or a timeout over stdio and HTTP+SSE.',
  containedBy: {
    policies: ['attemptTimeout'],
    how: 'The gateway matches replies by id and discards this reply; where all replies share a stream, the attempt timeout ends the wait.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  example: { name: 'wrong-id', rate: 0.05, ttl: '10m', match: { server: 'search' } },
  layer: (_, injection) => (next) => (call) => {
    const id = `${call.id}-other`
    const misnamed = (text: string) => {
      injection.note({ id })
      return withId(text, JSON.stringify(id))
    }
    if (sharesStream(call, injection))
      return onAnswer((text) => ({ texts: [misnamed(text)] }), injection)(next)(call)
    return next(unopened(call, injection)).then((outcome) => {
      const result = breakable(call, outcome, injection)
      if (result === undefined) return outcome
      const { text, status } = result
      return injection.reply(call, json(misnamed(text), status))
    })
  },
} satisfies FaultType<IdentityConfig>

/**
 * The reply arrives twice. Upstream, the second reply arrives after the first reply has ended the call. On side client,
 * the agent gets both replies as events of one stream, because a JSON body can hold only one reply.
 */
export const duplicate = {
  schema: identitySchema,
  family: 'rpc',
  about: "The server's reply arrives twice.",
  use: 'To check that a reply sent twice is delivered once.',
  seen: 'One answer.',
  containedBy: { policies: [], how: 'The gateway matches replies by id and discards the second reply.' },
  methods: requests,
  sides: ['upstream', 'client'],
  example: { name: 'duplicate', rate: 0.1, ttl: '10m', match: { server: 'search' } },
  layer: (_, injection) => (next) => (call) => {
    if (sharesStream(call, injection)) {
      const again = onAnswer((text) => {
        injection.note({ effect: 'orphan' })
        return { texts: [text, text] }
      }, injection)
      return again(next)(call)
    }
    return next(unopened(call, injection)).then((outcome) => {
      const result = breakable(call, outcome, injection)
      if (result === undefined) return outcome
      injection.note({ effect: injection.side === 'upstream' ? 'orphan' : 'two events' })
      if (injection.side === 'client') return twice(outcome, result)
      orphan(call, result, injection)
      return outcome
    })
  },
} satisfies FaultType<IdentityConfig>

function twice(outcome: Outcome, { text }: CallResult): Outcome {
  const event = encodeEvent(text)
  const headers = { 'content-type': 'text/event-stream', 'cache-control': 'no-store' }
  return { ...outcome, wire: { status: 200, headers, body: event + event } }
}

const lateSchema = z.strictObject({
  delay: duration({ min: 1 })
    .default(5_000)
    .describe("How long after the server's answer the reply arrives."),
})

/**
 * The server runs the call at once, and its reply is late. The gateway gets the reply even after a timeout, and has to
 * discard the reply when no call waits for it.
 */
export const late = {
  schema: lateSchema,
  family: 'rpc',
  about: 'The server runs the call at once, and its reply arrives late.',
  use: 'To test an answer that arrives after the caller has given up.',
  seen: 'A delay, or a timeout; the server has run the call.',
  containedBy: {
    policies: ['attemptTimeout'],
    how: 'The attempt timeout ends the wait, and the gateway discards the reply when it comes.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  example: { name: 'late', rate: 0.1, ttl: '10m', match: { server: 'search' }, delay: '2s' },
  layer:
    ({ delay }, injection) =>
    (next) =>
    (call) => {
      if (sharesStream(call, injection)) return lateAnswer(delay, injection)(next)(call)
      return next(call).then((outcome) => {
        if (outcome.kind !== 'answered') {
          injection.notReached(NO_REPLY)
          return outcome
        }
        injection.note({ delayMs: delay })
        const dueAt = injection.clock.now() + delay
        return injection.pause(delay, call).then((how) => {
          if (how !== 'aborted') return outcome
          if (injection.side === 'upstream')
            arriveLate(call, outcome.result, dueAt - injection.clock.now(), injection)
          return givenUp(call)
        })
      })
    },
} satisfies FaultType<z.output<typeof lateSchema>>

/** Returns a layer that holds an answer on the shared stream for `delay`, while answers of other calls pass. */
function lateAnswer(delay: Millis, injection: Injection): Layer {
  return onAnswer((text, call) => {
    const holds = (over: Promise<void>) => {
      injection.note({ delayMs: delay })
      void injection.delaying(call, firstOf(over, call.signal))
    }
    return { texts: [text], holdMs: delay, holds }
  }, injection)
}

/** Delivers a reply after `inMs` milliseconds, unless the fault has ended by then. */
function arriveLate(call: Call, result: CallResult, inMs: Millis, injection: Injection): void {
  const { released } = injection
  if (released.aborted) return
  const cancel = injection.clock.after(inMs, () => {
    released.removeEventListener('abort', cancel)
    orphan(call, result, injection)
  })
  released.addEventListener('abort', cancel, { once: true })
}

const reorderSchema = z.strictObject({
  maxHold: duration({ min: 1 })
    .default(1_000)
    .describe('The longest time that a reply waits for a later reply to overtake it.'),
})

/**
 * Time between the overtaking reply and the overtaken reply, in milliseconds. Replies use separate sockets, which are
 * read in any order.
 */
const AHEAD_MS = 25

/** A server's reply that waits for another reply to overtake it. */
interface Line {
  letGo: (() => void) | undefined
}

/**
 * Swaps replies in pairs: a reply waits until the server's next hit reply has passed. With a rate below 1, many other
 * replies may overtake as well.
 */
export const reorder = {
  schema: reorderSchema,
  family: 'rpc',
  about: 'A reply waits until a later reply of the same server has passed.',
  use: "To check that concurrent calls to a server cannot get each other's answers.",
  seen: 'A delay until another call is answered, for `maxHold` at most.',
  containedBy: { policies: [], how: 'The gateway matches replies by id, so each call gets its own answer.' },
  methods: requests,
  sides: ['upstream', 'client'],
  example: { name: 'reorder', rate: 0.2, ttl: '10m', match: { server: 'search' }, maxHold: '1s' },
  layer:
    ({ maxHold }, injection) =>
    (next) =>
    (call) =>
      next(call).then((outcome) => {
        if (injection.released.aborted) return outcome
        if (outcome.kind !== 'answered') {
          injection.notReached(NO_REPLY)
          return outcome
        }
        const line = injection.memory<Line>(`line of ${call.server}`, () => ({ letGo: undefined }))
        const { letGo } = line
        if (letGo === undefined) return stand(line, maxHold, call, injection).then((held) => held ?? outcome)
        line.letGo = undefined
        injection.note({ effect: 'overtakes' })
        injection.clock.after(AHEAD_MS, letGo)
        return outcome
      }),
} satisfies FaultType<z.output<typeof reorderSchema>>

/**
 * Waits until another reply has overtaken this reply. Resolves to undefined when the reply may be delivered, or to a
 * failure when the caller has given up.
 */
function stand(line: Line, maxHold: Millis, call: Call, injection: Injection) {
  const { end, leave } = endOf(call)
  const since = injection.clock.now()
  let isOvertaken = false
  const letGo = () => {
    isOvertaken = true
    end.abort('overtaken')
  }
  line.letGo = letGo
  // The journal shows at once that this reply waits for the next.
  injection.note({ effect: 'waits' })
  return injection.pause(maxHold, derive(call, { signal: end })).then((how) => {
    leave()
    if (line.letGo === letGo) line.letGo = undefined
    if (!isOvertaken && how === 'aborted') return givenUp(call)
    // The reply is late, even when no other reply has overtaken it.
    const heldMs = Math.round(injection.clock.now() - since)
    if (isOvertaken || how === 'over')
      injection.note({ effect: isOvertaken ? 'overtaken' : 'not overtaken', heldMs })
    return undefined
  })
}

const mismatchSchema = z.strictObject({})

type MismatchConfig = z.output<typeof mismatchSchema>

/** Imitates a server replaced by another version: the server refuses requests with the earlier protocol version. */
export const versionMismatch = {
  schema: mismatchSchema,
  family: 'rpc',
  about: 'The server no longer speaks its earlier version of the protocol.',
  use: 'To test the replacement of a server by one that speaks another version of the protocol.',
  seen: 'HTTP 400 (at the endpoint of all servers 200) with the code -32022; in the legacy era nothing when a retry succeeds, or -32000.',
  containedBy: {
    policies: ['retry'],
    how: 'In the legacy era, retry repeats calls that only read. In the modern era, the agent gets the refusal, because the agent names the version: no policy repeats the call, and no breaker counts it.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  example: { name: 'version', rate: 0.02, ttl: '10m', match: { server: 'modern' } },
  refuses: ({ transport, era }) =>
    era === 'legacy' && transport !== 'http'
      ? `requests over ${transport} name no version in the legacy era`
      : undefined,
  layer: (_, injection) => (next) => (call) => {
    const { transport, era } = kindFor(call, injection)
    if (era === undefined || (era === 'legacy' && transport !== 'http')) {
      injection.notApplicable(
        era === undefined
          ? 'the era of the server is not known yet'
          : `requests over ${transport} name no version`,
      )
      return next(call)
    }
    injection.note({ era })
    const body = era === 'modern' ? modernRefusal(call) : legacyRefusal
    return Promise.resolve(refusal(call, json(body, 400), injection))
  },
} satisfies FaultType<MismatchConfig>

/** Imitates a server, or a proxy before the server, that reads other headers than the gateway wrote. */
export const headerMismatch = {
  schema: mismatchSchema,
  family: 'rpc',
  about: 'The server finds headers that contradict the body.',
  use: 'To test how clients recover when a server claims that headers and body of a request disagree.',
  seen: 'HTTP 400 (at the endpoint of all servers 200) with the code -32020.',
  containedBy: {
    policies: [],
    how: 'The gateway passes the refusal on: no policy repeats the call, and no breaker counts it. A client may fetch the list again, whose schemas name the headers, and call again.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: { only: ['http'], otherwise: '{} has no headers' },
  eras: { only: ['modern'], otherwise: 'the legacy era has no headers that repeat the body' },
  example: { name: 'header', rate: 0.02, ttl: '10m', match: { server: 'modern' } },
  layer: (_, injection) => (next) => (call) => {
    const { transport, era } = kindFor(call, injection)
    if (transport !== 'http' || era !== 'modern') {
      injection.notApplicable('only requests of the modern era over HTTP have headers that repeat the body')
      return next(call)
    }
    const header = call.tool === undefined ? 'Mcp-Method' : 'Mcp-Name'
    injection.note({ header })
    const mismatch = { code: HEADER_MISMATCH, message: `Header mismatch: ${header}` }
    return Promise.resolve(refusal(call, json(errorBody(rawId(call), mismatch), 400), injection))
  },
} satisfies FaultType<MismatchConfig>

/**
 * Returns the transport and the era on the injection's side: for the agent always HTTP, in the era of the agent's
 * choice.
 */
function kindFor(call: Call, { side, faultEnvironment }: Injection): Partial<ServerKind> {
  if (side === 'upstream') return faultEnvironment.kindOf(call) ?? {}
  return { transport: 'http', era: call.caller.era }
}

function modernRefusal(call: Call): string {
  const meta = paramsOf(call.message.value)._meta as Readonly<Record<string, unknown>> | undefined
  const requested = meta?.[PROTOCOL_VERSION_KEY] ?? MODERN_VERSION
  return errorBody(rawId(call), {
    code: UNSUPPORTED_VERSION,
    message: 'Unsupported protocol version',
    data: { supported: [LATEST_LEGACY], requested },
  })
}

/** Legacy servers check the header before they read the body, so their error names no id. */
const legacyRefusal = errorBody('null', {
  code: -32000,
  message: `Bad Request: Unsupported protocol version (supported versions: ${legacyVersions.slice(1).join(', ')})`,
})

/** Faults of the JSON-RPC in replies. */
export const rpcFaults = {
  'rpc.error': error,
  'rpc.malformed': malformed,
  'rpc.wrong_id': wrongId,
  'rpc.duplicate': duplicate,
  'rpc.late': late,
  'rpc.reorder': reorder,
  'rpc.version_mismatch': versionMismatch,
  'rpc.header_mismatch': headerMismatch,
}
