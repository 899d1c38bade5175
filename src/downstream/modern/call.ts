import type { CallRecord, Channel, Message, RequestId, WireReply } from '../../mesh/call.ts'
import { Cancellation, ignore } from '../../mesh/cancel.ts'
import type { Clock } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { ChannelWire, WireShape } from '../../mesh/wire-shape.ts'
import { pauseDeadline, type ServerQuestion } from '../../mesh/pause-deadline.ts'
import { parseExactly } from '../../protocol/json-parse.ts'
import {
  type Edit,
  edit,
  inOrder,
  locate,
  locateAll,
  locateMembers,
  replaceAt,
  replacing,
  splice,
} from '../../protocol/json-span.ts'
import {
  errorText,
  INTERNAL_ERROR,
  INVALID_PARAMS,
  isObject,
  METHOD_NOT_FOUND,
  paramsOf,
  resultText,
} from '../../protocol/jsonrpc.ts'
import { LargeMessage } from '../../protocol/large-message.ts'
import { HEADER_MISMATCH, MISSING_CAPABILITY } from '../../protocol/versions.ts'
import { CallPlace } from '../call-place.ts'
import type { Servers } from '../../access/caller.ts'
import { isLarge } from '../http/post-reply.ts'
import type { Quota } from '../limits/quotas.ts'
import { gatewayErrorText, type Response } from '../respond.ts'
import type { Envelope } from './envelope.ts'
import type { PendingInputStore } from './pending-inputs.ts'
import type { PooledCaller } from './pool.ts'
import type { Post } from './post.ts'

/** A POST that waits for this call: its request id, progress token and reply. */
interface Round {
  readonly id: RequestId
  readonly progressToken: unknown
  readonly post: Post
}

interface KeptAnswer {
  readonly text: Buffer
  readonly status: number
  readonly wire: WireReply | undefined
}

interface ModernCallParts {
  readonly pendingInputs: PendingInputStore<ModernCall>
  readonly calls: Quota
}

/**
 * A modern client's call to a server. When the server asks a question during the call, the gateway answers the client's
 * POST with `input_required`, and the call waits. The client's POST with the answers resumes the call.
 */
export class ModernCall implements ChannelWire {
  readonly signal = new Cancellation()
  /**
   * The first POST's envelope. When the answer waits for a further POST, the request id is dropped, because it may be
   * long.
   */
  envelope: Envelope
  readonly caller: PooledCaller
  /** The servers of the config when the call began. They decide which headers tell callers apart. */
  readonly servers: Servers
  /** The server, method and name of the request. The POST that resumes the call must name the same target. */
  readonly target: string
  /** The client that sent the call, and the tenant it counts for. */
  readonly client: string
  readonly tenant: string
  readonly session = undefined
  readonly #calls: Quota
  readonly #pendingInputs: PendingInputStore<ModernCall>
  #round: Round | undefined
  /** The open questions; undefined until the server asks, because most servers ask nothing. */
  #questions: Questions | undefined
  #place: CallPlace | undefined
  /** The answer while no POST waits. Stored as bytes, so no larger text stays in memory. */
  #kept: KeptAnswer | undefined
  /** Breakwater's id of the call; set when the call has ended. */
  #callId: RequestId = 0
  #state: string | undefined

  constructor(
    envelope: Envelope,
    caller: PooledCaller,
    servers: Servers,
    { client, tenant }: Pick<ModernCall, 'client' | 'tenant'>,
    target: string,
    { pendingInputs, calls }: ModernCallParts,
  ) {
    this.envelope = envelope
    this.caller = caller
    this.servers = servers
    this.client = client
    this.tenant = tenant
    this.target = target
    this.#calls = calls
    this.#pendingInputs = pendingInputs
  }

  /** Makes a POST wait for the call. Answers it at once if the call has already ended or has open questions. */
  begin(round: Round): void {
    this.#round = round
    if (this.#kept !== undefined) this.#finish(read(this.#kept), round)
    else if (this.#questions !== undefined && this.#questions.size > 0) this.#ask(this.#questions, round)
  }

  /** Cancels the call when the client of the waiting POST has disconnected. */
  abandon(round: Round): void {
    if (this.#round === round) this.signal.abort(gatewayError('cancelled', 'the client disconnected'))
  }

  /** True when sending or keeping a response takes long. */
  takesLong(response: Response): boolean {
    const post = this.#round?.post
    if (post === undefined) return isLarge(response)
    return post.takesLong(response) || (LargeMessage.is(response) && spansOf(response) === undefined)
  }

  /** Ends the call with its response. The id in the response is `callId`, Breakwater's id of the call. */
  end(response: Response, record: CallRecord, callId: RequestId): void {
    this.#callId = callId
    this.#place?.end()
    this.#questions?.end()
    this.#questions = undefined
    if (this.#round !== undefined) return this.#finish(response, this.#round)
    const { text, status, wire } = response
    const bytes = Buffer.byteLength(text) + Buffer.byteLength(wire?.body ?? '')
    const full = this.#state === undefined ? undefined : this.#pendingInputs.keep(this.#state, bytes)
    this.#kept =
      full === undefined
        ? { text: Buffer.from(text), status, wire }
        : { text: Buffer.from(gatewayErrorText(0, full, { record })), status: 200, wire: undefined }
    this.envelope = { ...this.envelope, id: 0 }
  }

  /**
   * Passes the client's answers on to the server. `responses` has the answers by question key; `text` is the whole
   * request.
   */
  answer(text: string, responses: Readonly<Record<string, unknown>>): void {
    this.#questions?.answer(text, responses)
  }

  channel(record: CallRecord, clock: Pick<Clock, 'now'>): Channel {
    return {
      open: () => undefined,
      pause: () => undefined,
      send: (message, answer) => {
        if (answer !== undefined) {
          this.#place ??= new CallPlace(record, this.client, this.#calls).begin()
          // Marks the call as begun: after a retry the server would ask again, although the agent already has this
          // question.
          if (this.#question(message, pauseDeadline(record, clock, answer)))
            record.firstByteAt ??= clock.now()
          return undefined
        }
        if (message.value.method === 'notifications/cancelled') return void this.#questions?.withdraw(message)
        const text = this.#notification(message)
        if (text === undefined || this.#round === undefined) return undefined
        record.firstByteAt ??= clock.now()
        return this.#round.post.send(text)
      },
      wire: this,
    }
  }

  shape(shape: WireShape): boolean {
    return this.#round?.post.shape(shape) ?? true
  }

  get framing(): number {
    return this.#round?.post.framing ?? 0
  }

  #notification(message: Message): string | undefined {
    switch (message.value.method) {
      case 'notifications/progress':
        return this.#round?.progressToken === undefined
          ? undefined
          : replaceAt(message.text, ['params', 'progressToken'], this.#round.progressToken)
      case 'notifications/message':
        return admits(this.envelope.logLevel, paramsOf(message.value).level) ? message.text : undefined
      default:
        return undefined
    }
  }

  /** Stores a server's question. Returns true when the client must answer it; false when it is already answered. */
  #question(request: Message, asking: ServerQuestion): boolean {
    this.#questions ??= new Questions(this.envelope.capabilities, {
      take: (bytes) => this.#pendingInputs.holdQuestion(this.client, bytes),
      release: (bytes) => this.#pendingInputs.releaseQuestion(this.client, bytes),
    })
    const isKept = this.#questions.ask(request, asking)
    if (isKept && this.#round !== undefined) this.#ask(this.#questions, this.#round)
    return isKept
  }

  /** Answers the waiting POST with the open questions, and stores the call until the client answers. */
  #ask(questions: Questions, round: Round): void {
    const state = this.#pendingInputs.enter(this)
    if (typeof state !== 'string') return this.signal.abort({ ...state, sent: true })
    this.#state = state
    this.#round = undefined
    round.post.finish({ text: resultText(round.id, questions.put(state)), status: 200 })
  }

  #finish(response: Response, round: Round): void {
    this.#kept = this.#round = undefined
    const modern = modernise(this.envelope.method, round.id, response)
    const { headers, wire } = response
    const own = wire?.body === undefined ? modern : { ...modern, wire: underId(wire, this.#callId, round.id) }
    round.post.finish(headers === undefined ? own : { ...own, headers })
  }
}

/**
 * Returns a fault's bytes with the client's id in place of Breakwater's id of the call. The bytes need not be JSON.
 * Also replaces the beginning of a longer id: `"breakwater-7-other"` becomes `"1-other"`.
 */
function underId(wire: WireReply, callId: RequestId, id: RequestId): WireReply {
  const ours = JSON.stringify(String(callId)).slice(0, -1)
  const whole = JSON.stringify(id)
  const begun = JSON.stringify(String(id)).slice(0, -1)
  const body = wire.body
    ?.replaceAll(`"id":${ours}"`, () => `"id":${whole}`)
    .replaceAll(`"id":${ours}-`, () => `"id":${begun}-`)
  return { ...wire, ...(body !== undefined && { body }) }
}

function read({ text, status, wire }: KeptAnswer): Response {
  const response = { text: text.toString(), status }
  return wire === undefined ? response : { ...response, wire }
}

/** The requests that a server may send during a call, each with the client capability it needs. */
const askable: Readonly<Record<string, string>> = {
  'elicitation/create': 'elicitation',
  'sampling/createMessage': 'sampling',
  'roots/list': 'roots',
}

/** Most rounds of questions, and most unanswered questions, of one call. */
const MAX_ROUNDS = 10
const MAX_OPEN = 100

interface Question {
  /** The id that the server gave the question. */
  readonly id: unknown
  /** The question as JSON text for `inputRequests`. */
  readonly text: string
  readonly bytes: number
  readonly asking: ServerQuestion
}

/** The quota for bytes of a client's questions. */
interface Room {
  /** Takes bytes from the quota. Returns false when there are too few. */
  take(bytes: number): boolean
  release(bytes: number): void
}

/** The open questions of a call's server, until the client answers. */
export class Questions {
  readonly #capabilities: Readonly<Record<string, unknown>>
  readonly #room: Room
  readonly #open = new Map<string, Question>()
  #asked = 0
  #rounds = 0

  /** `capabilities`: the capabilities of the client. */
  constructor(capabilities: Readonly<Record<string, unknown>>, room: Room) {
    this.#capabilities = capabilities
    this.#room = room
  }

  get size(): number {
    return this.#open.size
  }

  /**
   * Stores a question. Returns false when the client need not answer: a ping is answered here, and a refused question
   * gets an error.
   */
  ask(request: Message, asking: ServerQuestion): boolean {
    const { method, id } = request.value as { method: string; id: unknown }
    const reply = method === 'ping' ? resultText(0, '{}') : this.#refusal(method)
    const text = reply === undefined ? bare(request) : ''
    const bytes = Buffer.byteLength(text)
    const isKept = reply === undefined && this.#open.size < MAX_OPEN && this.#room.take(bytes)
    if (isKept) this.#open.set(`${method.split('/')[0]}-${++this.#asked}`, { id, text, bytes, asking })
    else void asking.answer(reply ?? errorText(null, INTERNAL_ERROR, OWES)).catch(ignore)
    return isKept
  }

  /**
   * Returns an `input_required` result with the open questions. The client must return `requestState` with its answers.
   */
  put(requestState: string): string {
    this.#rounds++
    const requests = [...this.#open].map(([key, { text }]) => `${JSON.stringify(key)}:${text}`)
    const members = [
      '"resultType":"input_required"',
      `"inputRequests":{${requests.join()}}`,
      `"requestState":${JSON.stringify(requestState)}`,
    ]
    return `{${members.join()}}`
  }

  /** Passes answers on to the server. `responses` has the answers by question key; `text` is the whole request. */
  answer(text: string, responses: Readonly<Record<string, unknown>>): void {
    // Iterates over the questions, not the answers: questions are few, but a client may send any number of answers.
    const answered = [...this.#open].filter(([key]) => Object.hasOwn(responses, key))
    const spans = locateAll(
      text,
      answered.map(([key]) => ['params', 'inputResponses', key]),
    )
    for (const [index, [key, question]] of answered.entries()) {
      const span = spans[index]
      if (span === undefined) continue
      this.#forget(key, question)
      // Ignores a failure: if the connection to the server is lost, the call ends anyway.
      void question.asking.answer(resultText(0, text.slice(span.start, span.end))).catch(ignore)
    }
  }

  /** Drops a question that its server has cancelled. The client does not get it again, and its answer is ignored. */
  withdraw(notification: Message): void {
    const { requestId } = paramsOf(notification.value)
    for (const [key, question] of this.#open) {
      if (question.id !== requestId) continue
      this.#forget(key, question)
      return question.asking.withdrawn?.()
    }
  }

  /** Drops all questions, because the call has ended. */
  end(): void {
    for (const [key, question] of this.#open) this.#forget(key, question)
  }

  #forget(key: string, { bytes }: Question): void {
    this.#open.delete(key)
    this.#room.release(bytes)
  }

  /** Returns the error for a question that the client must not get; undefined when the client gets the question. */
  #refusal(method: string): string | undefined {
    const capability = askable[method]
    if (capability === undefined) return errorText(null, METHOD_NOT_FOUND, `Method not found: ${method}`)
    if (!isObject(this.#capabilities[capability]))
      return errorText(null, MISSING_CAPABILITY, `the client has no capability "${capability}"`)
    if (this.#rounds < MAX_ROUNDS) return undefined
    return errorText(null, METHOD_NOT_FOUND, `more than ${MAX_ROUNDS} rounds of questions`)
  }
}

/** The error message for a server whose client has too many unanswered questions. */
const OWES = 'the client has too many open questions'

/** Returns a request's method and params as JSON text for `inputRequests`. */
function bare({ text, value }: Message): string {
  const params = locate(text, ['params'])
  const method = JSON.stringify(value.method)
  return params === undefined
    ? `{"method":${method}}`
    : `{"method":${method},"params":${text.slice(params.start, params.end)}}`
}

/** Methods whose results have the caching rules `ttlMs` and `cacheScope`. */
const cacheable = new Set([
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
])

/** The legacy error code for a missing resource. The modern code is the same as for invalid params. */
const RESOURCE_NOT_FOUND = -32002

/** Returns an answer for a modern client, with the client's id. Adds the required members that legacy servers omit. */
export function modernise(method: string, id: RequestId, response: Response): Response {
  const { status: given, wire } = response
  // Adapts the text too: an open stream sends the text as a message, and other replies send only the fault's bytes.
  if (wire !== undefined && wire.end !== 'shape') {
    const { text } = modernise(method, id, { text: response.text, status: given })
    return { text, status: given, wire }
  }
  const large = LargeMessage.is(response) ? response : undefined
  const spliced = large && modernBytes(method, id, large)
  if (spliced !== undefined) return spliced
  const value = response.value ?? (parseExactly(response.text) as Record<string, unknown>)
  const status = isObject(value.error) ? statusOf(value.error.code, given) : given
  const find = (text: string) => modernEdits(text, method, id, value)
  if (large !== undefined) return large.edited(find, { status })
  return { text: splice(response.text, find(response.text)), status }
}

/** The same as `modernise` for a large message, without decoding it; undefined when the message must be decoded. */
function modernBytes(method: string, id: RequestId, message: LargeMessage): LargeMessage | undefined {
  const spans = spansOf(message)
  if (spans === undefined) return undefined
  const inside = spans.body.start + 1
  return message.spliced(
    inOrder([
      edit(spans.named, JSON.stringify(id)),
      { start: inside, end: inside, with: addition(method, spans.result) },
    ]),
  )
}

/** Returns the positions of a large message's id and result; undefined for an error, or when they are not found. */
function spansOf(message: LargeMessage) {
  const { result } = message.value
  const [named, body] = message.locate(['id', 'result']) ?? []
  if (named === undefined || body === undefined || !isObject(result)) return undefined
  return { named, body, result }
}

/**
 * Returns the edits that adapt the text of an answer for a modern client. The caller passes its parsed `result` or
 * `error`.
 */
function modernEdits(
  text: string,
  method: string,
  id: RequestId,
  { result, error }: Readonly<Record<string, unknown>>,
): readonly Edit[] {
  // Finds both in one scan, because a result may be long.
  const [named, body] = locateMembers(text, ['id', 'result'])
  const ownId = named === undefined ? newId(text, id) : edit(named, JSON.stringify(id))
  if (isObject(error)) {
    const isAbsent = error.code === RESOURCE_NOT_FOUND
    return isAbsent ? [ownId, ...replacing(text, ['error', 'code'], INVALID_PARAMS)] : [ownId]
  }
  const added = isObject(result) ? addition(method, result) : ''
  if (added === '' || body === undefined) return [ownId]
  const inside = body.start + 1
  return [ownId, { start: inside, end: inside, with: added }]
}

/** Returns the edit that inserts an id before all other members of an answer. */
function newId(text: string, id: RequestId): Edit {
  const inside = text.indexOf('{') + 1
  return { start: inside, end: inside, with: `"id":${JSON.stringify(id)},` }
}

/**
 * Returns the HTTP status for an error code in the modern era: 404 for unknown methods, 400 for missing parts of a
 * request. Hides the status of a lost upstream session, because these clients have no sessions.
 */
function statusOf(code: unknown, status: number): number {
  if (code === METHOD_NOT_FOUND) return 404
  if (code === HEADER_MISMATCH || code === MISSING_CAPABILITY) return 400
  return status === 404 ? 200 : status
}

/** Returns the members to insert before a result's own members; empty when none is missing. */
function addition(method: string, result: Readonly<Record<string, unknown>>): string {
  const missing = 'resultType' in result ? [] : ['"resultType":"complete"']
  // Legacy servers may omit empty content; modern clients require it.
  const isTool = method === 'tools/call' && missing.length > 0 && !('task' in result)
  if (isTool && !('content' in result)) missing.push('"content":[]')
  if (cacheable.has(method)) {
    if (!('ttlMs' in result)) missing.push('"ttlMs":0')
    if (!('cacheScope' in result)) missing.push('"cacheScope":"private"')
  }
  if (missing.length === 0) return ''
  for (const _ in result) return `${missing.join()},`
  return missing.join()
}

/** Log levels from the least to the most severe, as RFC 5424 names them. */
const levels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency']

/** True when a client with log level `wanted` gets messages of `level`. False without a wanted level. */
export function admits(wanted: string | undefined, level: unknown): boolean {
  return (
    wanted !== undefined &&
    levels.includes(wanted) &&
    levels.indexOf(level as string) >= levels.indexOf(wanted)
  )
}

/** True when `wanted` is more verbose than `current`, the log level of a server. */
export function isMoreVerbose(wanted: string, current: string | undefined): boolean {
  if (!levels.includes(wanted)) return false
  return current === undefined || levels.indexOf(wanted) < levels.indexOf(current)
}
