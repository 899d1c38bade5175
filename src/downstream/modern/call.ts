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

/** One POST that waits for this call: its own id and progress token, and the way back. */
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
  /** Calls under way. */
  readonly calls: Quota
}

/**
 * One call of a modern client to a server. When the server asks something in mid-call, the client's POST is
 * answered with `input_required`, the call waits, and the POST that brings the answers takes it up again.
 */
export class ModernCall implements ChannelWire {
  readonly signal = new Cancellation()
  /**
   * The envelope of the first POST of the call. Its id, which may be of any length, is kept only until the answer waits
   * for another POST.
   */
  envelope: Envelope
  readonly caller: PooledCaller
  /** The servers of the config under which the call began. The servers decide by which headers the caller is told apart. */
  readonly servers: Servers
  /** The target that the request names: a retry has to name the same. */
  readonly target: string
  /** The client that it came from, and the tenant that it counts as. */
  readonly client: string
  readonly tenant: string
  readonly session = undefined
  readonly #calls: Quota
  readonly #pendingInputs: PendingInputStore<ModernCall>
  #round: Round | undefined
  /** Most servers ask nothing. */
  #questions: Questions | undefined
  #place: CallPlace | undefined
  /** The answer, while no POST waits for it: as bytes, which keep nothing but themselves. */
  #kept: KeptAnswer | undefined
  /** The id of the call, which is ours; known when it has ended. */
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

  /** A POST begins to wait for the call. */
  begin(round: Round): void {
    this.#round = round
    if (this.#kept !== undefined) this.#finish(read(this.#kept), round)
    else if (this.#questions !== undefined && this.#questions.size > 0) this.#ask(this.#questions, round)
  }

  /** The POST that waits has lost its client: nobody wants the answer any more. */
  abandon(round: Round): void {
    if (this.#round === round) this.signal.abort(gatewayError('cancelled', 'the client disconnected'))
  }

  /** Whether it takes long to pass on a response, or to keep it. */
  takesLong(response: Response): boolean {
    const post = this.#round?.post
    if (post === undefined) return isLarge(response)
    return post.takesLong(response) || (LargeMessage.is(response) && spansOf(response) === undefined)
  }

  /** The call has ended; `response` is the server's, or ours, under `callId`, the id of the call. */
  end(response: Response, record: CallRecord, callId: RequestId): void {
    this.#callId = callId
    this.#place?.end()
    // Nobody answers them any more.
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

  /** Takes answers, by the keys of the questions; the text is that of the whole request. */
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
          // Tried once more, the server would ask again, and the agent has this question already.
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

  /** Whether it is for the client to answer. */
  #question(request: Message, asking: ServerQuestion): boolean {
    this.#questions ??= new Questions(this.envelope.capabilities, {
      take: (bytes) => this.#pendingInputs.holdQuestion(this.client, bytes),
      release: (bytes) => this.#pendingInputs.releaseQuestion(this.client, bytes),
    })
    const isKept = this.#questions.ask(request, asking)
    if (isKept && this.#round !== undefined) this.#ask(this.#questions, this.#round)
    return isKept
  }

  /** Answers the POST that waits with the open questions, and keeps the call until they are answered. */
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
 * Bytes that a fault puts on the wire as they are, under the client's id where they name the call by ours. They need not be
 * JSON, and an id in them may begin with that of the call: `"breakwater-7-other"` becomes `"1-other"`.
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

/** The requests that a server may send in mid-call, with the capability by which a client says that it can answer. */
const askable: Readonly<Record<string, string>> = {
  'elicitation/create': 'elicitation',
  'sampling/createMessage': 'sampling',
  'roots/list': 'roots',
}

/** Most rounds of questions that one call may take, and most questions of one call that wait for their answers. */
const MAX_ROUNDS = 10
const MAX_OPEN = 100

interface Question {
  /** The server's own id of it. */
  readonly id: unknown
  /** As `inputRequests` holds it. */
  readonly text: string
  readonly bytes: number
  readonly asking: ServerQuestion
}

/** Room for the questions of a client, in bytes. */
interface Room {
  /** False when there is not that much. */
  take(bytes: number): boolean
  release(bytes: number): void
}

/** The questions of the server of one call, until the client has answered them. */
export class Questions {
  readonly #capabilities: Readonly<Record<string, unknown>>
  readonly #room: Room
  readonly #open = new Map<string, Question>()
  #asked = 0
  #rounds = 0

  /** `capabilities` are those of the client. */
  constructor(capabilities: Readonly<Record<string, unknown>>, room: Room) {
    this.#capabilities = capabilities
    this.#room = room
  }

  /** How many the client has not answered yet. */
  get size(): number {
    return this.#open.size
  }

  /** Takes a question. False when it is not for the client to answer: then it is answered already. */
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

  /** A result that puts the open questions to the client, which brings back `requestState` with the answers. */
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

  /** Takes answers, by the keys of the questions; the text is that of the whole request that brings them. */
  answer(text: string, responses: Readonly<Record<string, unknown>>): void {
    // By the questions, of which there are few: of answers there are as many as their client likes.
    const answered = [...this.#open].filter(([key]) => Object.hasOwn(responses, key))
    const spans = locateAll(
      text,
      answered.map(([key]) => ['params', 'inputResponses', key]),
    )
    for (const [index, [key, question]] of answered.entries()) {
      const span = spans[index]
      if (span === undefined) continue
      this.#forget(key, question)
      // The way to the server has ended the call, or will.
      void question.asking.answer(resultText(0, text.slice(span.start, span.end))).catch(ignore)
    }
  }

  /** The server takes a question back: the client is not asked again, and an answer to it is dropped. */
  withdraw(notification: Message): void {
    const { requestId } = paramsOf(notification.value)
    for (const [key, question] of this.#open) {
      if (question.id !== requestId) continue
      this.#forget(key, question)
      return question.asking.withdrawn?.()
    }
  }

  /** The call is over: nobody waits for answers. */
  end(): void {
    for (const [key, question] of this.#open) this.#forget(key, question)
  }

  #forget(key: string, { bytes }: Question): void {
    this.#open.delete(key)
    this.#room.release(bytes)
  }

  /** Why a question does not reach the client; undefined when it does. */
  #refusal(method: string): string | undefined {
    const capability = askable[method]
    if (capability === undefined) return errorText(null, METHOD_NOT_FOUND, `Method not found: ${method}`)
    if (!isObject(this.#capabilities[capability]))
      return errorText(null, MISSING_CAPABILITY, `the client has no capability "${capability}"`)
    if (this.#rounds < MAX_ROUNDS) return undefined
    return errorText(null, METHOD_NOT_FOUND, `more than ${MAX_ROUNDS} rounds of questions`)
  }
}

/** The error that a server gets when its client has more to answer than is kept for the client. */
const OWES = 'the client owes too many answers'

/** A request as `inputRequests` holds it: method and params, no envelope. */
function bare({ text, value }: Message): string {
  const params = locate(text, ['params'])
  const method = JSON.stringify(value.method)
  return params === undefined
    ? `{"method":${method}}`
    : `{"method":${method},"params":${text.slice(params.start, params.end)}}`
}

/** Methods whose results say how long and by whom they may be kept. */
const cacheable = new Set([
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
])

/** The legacy code for a resource that is not there; the modern one is that for invalid params. */
const RESOURCE_NOT_FOUND = -32002

/** An answer as a modern client expects it, under its own id: what a legacy server leaves out is added, nothing else is touched. */
export function modernise(method: string, id: RequestId, response: Response): Response {
  const { status: given, wire } = response
  // In a stream that has begun, the text is a message; elsewhere the bytes of the fault take its place.
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

/** The same of a large message by its bytes; undefined where its outline is needed. */
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

/** Where a large message has its id and its result; undefined where it is an error, or they are not to be found. */
function spansOf(message: LargeMessage) {
  const { result } = message.value
  const [named, body] = message.locate(['id', 'result']) ?? []
  if (named === undefined || body === undefined || !isObject(result)) return undefined
  return { named, body, result }
}

/** Returns the edits that make the text of an answer, of which `result` or `error` is known, one for a modern client. */
function modernEdits(
  text: string,
  method: string,
  id: RequestId,
  { result, error }: Readonly<Record<string, unknown>>,
): readonly Edit[] {
  // One walk for both: a result may be long.
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

/** Puts an id in front of all else that an answer says. */
function newId(text: string, id: RequestId): Edit {
  const inside = text.indexOf('{') + 1
  return { start: inside, end: inside, with: `"id":${JSON.stringify(id)},` }
}

/**
 * Our own lost sessions are no business of a client that has none; unknown methods are 404 in this era, and 400 is what a request
 * lacks: also where the endpoint of all servers has left a server's own status out.
 */
function statusOf(code: unknown, status: number): number {
  if (code === METHOD_NOT_FOUND) return 404
  if (code === HEADER_MISMATCH || code === MISSING_CAPABILITY) return 400
  return status === 404 ? 200 : status
}

/** Returns the members to put in front of a result's own members; empty when the result has all that it needs. */
function addition(method: string, result: Readonly<Record<string, unknown>>): string {
  const missing = 'resultType' in result ? [] : ['"resultType":"complete"']
  // Clients of the legacy era take the result of a tool without content for one that is empty.
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

/** Whether a client that asked for `wanted` gets messages of `level`; one that asked for nothing gets none. */
export function admits(wanted: string | undefined, level: unknown): boolean {
  return (
    wanted !== undefined &&
    levels.includes(wanted) &&
    levels.indexOf(level as string) >= levels.indexOf(wanted)
  )
}

/** Whether a server that sends from `current` on has to be asked for more, to serve `wanted`. */
export function isMoreVerbose(wanted: string, current: string | undefined): boolean {
  if (!levels.includes(wanted)) return false
  return current === undefined || levels.indexOf(wanted) < levels.indexOf(current)
}
