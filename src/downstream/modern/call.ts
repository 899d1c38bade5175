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

/** A POST that waits for this call: its id, progress token and reply. */
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
 * A modern client's call to a server. When the server asks a question during the call, the client's POST is answered
 * with `input_required`, the call waits, and the POST with the answers resumes the call.
 */
export class ModernCall implements ChannelWire {
  readonly signal = new Cancellation()
  /** The first POST's envelope. The id, of any length, is kept only until the answer waits for another POST. */
  envelope: Envelope
  readonly caller: PooledCaller
  /** The servers of the config when the call began; they decide which headers tell callers apart. */
  readonly servers: Servers
  /** The target named by the request: a retry must name the same target. */
  readonly target: string
  /** The client that sent the call, and the tenant it counts for. */
  readonly client: string
  readonly tenant: string
  readonly session = undefined
  readonly #calls: Quota
  readonly #pendingInputs: PendingInputStore<ModernCall>
  #round: Round | undefined
  /** Most servers ask nothing. */
  #questions: Questions | undefined
  #place: CallPlace | undefined
  /** The answer while no POST waits: as bytes, which keep nothing else in memory. */
  #kept: KeptAnswer | undefined
  /** Breakwater's id of the call; known when the call has ended. */
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

  /** Makes a POST wait for the call. */
  begin(round: Round): void {
    this.#round = round
    if (this.#kept !== undefined) this.#finish(read(this.#kept), round)
    else if (this.#questions !== undefined && this.#questions.size > 0) this.#ask(this.#questions, round)
  }

  /** The client of the waiting POST has left: nobody wants the answer. */
  abandon(round: Round): void {
    if (this.#round === round) this.signal.abort(gatewayError('cancelled', 'the client disconnected'))
  }

  /** Whether sending or keeping a response takes long. */
  takesLong(response: Response): boolean {
    const post = this.#round?.post
    if (post === undefined) return isLarge(response)
    return post.takesLong(response) || (LargeMessage.is(response) && spansOf(response) === undefined)
  }

  /** Ends the call; `response`, from the server or the gateway, is under `callId`, the id of the call. */
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

  /** Takes answers, by question key; `text` is the whole request. */
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
          // On a retry the server would ask again, and the agent already has this question.
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

  /** Whether the client must answer the request. */
  #question(request: Message, asking: ServerQuestion): boolean {
    this.#questions ??= new Questions(this.envelope.capabilities, {
      take: (bytes) => this.#pendingInputs.holdQuestion(this.client, bytes),
      release: (bytes) => this.#pendingInputs.releaseQuestion(this.client, bytes),
    })
    const isKept = this.#questions.ask(request, asking)
    if (isKept && this.#round !== undefined) this.#ask(this.#questions, this.#round)
    return isKept
  }

  /** Answers the waiting POST with the open questions, and keeps the call until they are answered. */
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
 * Returns a fault's bytes under the client's id where they name the call by Breakwater's id. The bytes need not be
 * JSON, and an id in them may begin with the call's id: `"breakwater-7-other"` becomes `"1-other"`.
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

/** The requests a server may send during a call, with the client capability each needs. */
const askable: Readonly<Record<string, string>> = {
  'elicitation/create': 'elicitation',
  'sampling/createMessage': 'sampling',
  'roots/list': 'roots',
}

/** Most rounds of questions of a call, and most unanswered questions of a call. */
const MAX_ROUNDS = 10
const MAX_OPEN = 100

interface Question {
  /** The server's own id of the question. */
  readonly id: unknown
  /** The question as in `inputRequests`. */
  readonly text: string
  readonly bytes: number
  readonly asking: ServerQuestion
}

/** Space for a client's questions, in bytes. */
interface Room {
  /** False when there is not enough space. */
  take(bytes: number): boolean
  release(bytes: number): void
}

/** The questions of a call's server, until the client answers. */
export class Questions {
  readonly #capabilities: Readonly<Record<string, unknown>>
  readonly #room: Room
  readonly #open = new Map<string, Question>()
  #asked = 0
  #rounds = 0

  /** `capabilities` are the client's. */
  constructor(capabilities: Readonly<Record<string, unknown>>, room: Room) {
    this.#capabilities = capabilities
    this.#room = room
  }

  get size(): number {
    return this.#open.size
  }

  /** Takes a question. False when the client need not answer: the question is already answered. */
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

  /** Returns a result with the open questions for the client, which returns `requestState` with the answers. */
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

  /** Takes answers, by question key; `text` is the whole request with the answers. */
  answer(text: string, responses: Readonly<Record<string, unknown>>): void {
    // Iterates over the few questions: a client may send any number of answers.
    const answered = [...this.#open].filter(([key]) => Object.hasOwn(responses, key))
    const spans = locateAll(
      text,
      answered.map(([key]) => ['params', 'inputResponses', key]),
    )
    for (const [index, [key, question]] of answered.entries()) {
      const span = spans[index]
      if (span === undefined) continue
      this.#forget(key, question)
      // The connection to the server has ended the call, or will.
      void question.asking.answer(resultText(0, text.slice(span.start, span.end))).catch(ignore)
    }
  }

  /** Withdraws a server's question: the client is not asked again, and an answer is dropped. */
  withdraw(notification: Message): void {
    const { requestId } = paramsOf(notification.value)
    for (const [key, question] of this.#open) {
      if (question.id !== requestId) continue
      this.#forget(key, question)
      return question.asking.withdrawn?.()
    }
  }

  /** Ends all questions: the call is over. */
  end(): void {
    for (const [key, question] of this.#open) this.#forget(key, question)
  }

  #forget(key: string, { bytes }: Question): void {
    this.#open.delete(key)
    this.#room.release(bytes)
  }

  /** Returns why a question does not reach the client; undefined when the question does. */
  #refusal(method: string): string | undefined {
    const capability = askable[method]
    if (capability === undefined) return errorText(null, METHOD_NOT_FOUND, `Method not found: ${method}`)
    if (!isObject(this.#capabilities[capability]))
      return errorText(null, MISSING_CAPABILITY, `the client has no capability "${capability}"`)
    if (this.#rounds < MAX_ROUNDS) return undefined
    return errorText(null, METHOD_NOT_FOUND, `more than ${MAX_ROUNDS} rounds of questions`)
  }
}

/** The server's error when its client owes too many answers. */
const OWES = 'the client owes too many answers'

/** Returns a request as in `inputRequests`: method and params, no envelope. */
function bare({ text, value }: Message): string {
  const params = locate(text, ['params'])
  const method = JSON.stringify(value.method)
  return params === undefined
    ? `{"method":${method}}`
    : `{"method":${method},"params":${text.slice(params.start, params.end)}}`
}

/** Methods whose results state how long and by whom they may be cached. */
const cacheable = new Set([
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
])

/** The legacy code for a missing resource; the modern code is the one for invalid params. */
const RESOURCE_NOT_FOUND = -32002

/** Returns an answer for a modern client, under its own id: adds members omitted by legacy servers, no more. */
export function modernise(method: string, id: RequestId, response: Response): Response {
  const { status: given, wire } = response
  // In an open stream the text is a message; elsewhere the fault's bytes replace the text.
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

/** Does the same for a large message by its bytes; undefined where its outline is needed. */
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

/** Returns where a large message has its id and result; undefined for an error, or when not found. */
function spansOf(message: LargeMessage) {
  const { result } = message.value
  const [named, body] = message.locate(['id', 'result']) ?? []
  if (named === undefined || body === undefined || !isObject(result)) return undefined
  return { named, body, result }
}

/** Returns the edits that adapt an answer for a modern client; `result` or `error` is known. */
function modernEdits(
  text: string,
  method: string,
  id: RequestId,
  { result, error }: Readonly<Record<string, unknown>>,
): readonly Edit[] {
  // A single walk for both: a result may be long.
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

/** Puts an id before all other members of an answer. */
function newId(text: string, id: RequestId): Edit {
  const inside = text.indexOf('{') + 1
  return { start: inside, end: inside, with: `"id":${JSON.stringify(id)},` }
}

/**
 * Hides Breakwater's lost sessions from clients without sessions. In this era unknown methods are 404 and missing parts
 * of a request 400, even where the aggregate endpoint dropped a server's status.
 */
function statusOf(code: unknown, status: number): number {
  if (code === METHOD_NOT_FOUND) return 404
  if (code === HEADER_MISMATCH || code === MISSING_CAPABILITY) return 400
  return status === 404 ? 200 : status
}

/** Returns the members to put before a result's own members; empty when the result is complete. */
function addition(method: string, result: Readonly<Record<string, unknown>>): string {
  const missing = 'resultType' in result ? [] : ['"resultType":"complete"']
  // Legacy clients accept a tool result without content as empty.
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

/** Whether a client that asked for `wanted` gets messages of `level`; without a wanted level, none. */
export function admits(wanted: string | undefined, level: unknown): boolean {
  return (
    wanted !== undefined &&
    levels.includes(wanted) &&
    levels.indexOf(level as string) >= levels.indexOf(wanted)
  )
}

/** Whether a server that sends from `current` on must send more to serve `wanted`. */
export function isMoreVerbose(wanted: string, current: string | undefined): boolean {
  if (!levels.includes(wanted)) return false
  return current === undefined || levels.indexOf(wanted) < levels.indexOf(current)
}
