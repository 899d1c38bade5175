import { randomUUID } from 'node:crypto'
import type { Call, Caller, Message, Outcome, RequestId } from '../../mesh/call.ts'
import { wasTurnedDown } from '../../mesh/classify.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { parseExactly } from '../../protocol/json-parse.ts'
import { edit, elements, locate, members, splice } from '../../protocol/json-span.ts'
import {
  errorText,
  INTERNAL_ERROR,
  isObject,
  notificationText,
  paramsOf,
  parseJson,
  readMessage,
} from '../../protocol/jsonrpc.ts'
import { isWider, legacyTool } from '../../protocol/output-schema.ts'
import { printableWords } from '../../telemetry/printable.ts'
import { abortError } from '../failure.ts'
import { answered } from '../http/http-status.ts'
import { rawAt, withRawId } from '../../protocol/renumber.ts'
import type { SessionState } from '../shared/session-state.ts'
import type { TaskBinding } from '../shared/task-binding.ts'
import type { UpstreamSession } from '../upstream.ts'
import type { Discover } from './discover.ts'
import { KeptSession, ModernListener, type Subscribe } from './modern-listener.ts'
import { isModern, withMembers, withMeta } from './modern-request.ts'
import type { ToolCallRules } from './tool-call-rules.ts'

/** How the requests of one caller reach a server of the modern era. */
export interface ModernWay {
  /** Sends a call as `text`, whose id is `id`, and follows it up to the answer. Never rejects. */
  send(call: Call, text: string, id: RequestId): Promise<Outcome>
  readonly subscribe: Subscribe
  /** Ends what is under way. */
  abandon(error: GatewayError): void
}

interface ModernTerms {
  /** The server's name in the registry. */
  readonly server: string
  readonly clock: Clock
  readonly way: ModernWay
  readonly discover: Discover
  readonly tools: ToolCallRules
  /** The state that the caller asked for, in this upstream session and in those before. */
  readonly state: SessionState
  /** The owners of the server's tasks, where nothing else tells. */
  readonly tasks?: TaskBinding
}

/**
 * A caller's upstream session with a server of the modern era, which knows nothing of sessions: each request
 * says all that a session used to know, and what the server used to keep for a caller is kept here.
 */
export class ModernSession implements UpstreamSession {
  readonly keepsState = false
  readonly initializeResult: Message
  readonly #terms: ModernTerms
  readonly #end = new AbortController()
  readonly #session: KeptSession
  readonly #listener: ModernListener
  /** Whether the server is being asked for the subscriptions of a session before, and has not taken these yet. */
  #isRestoring = false
  #ids = 0

  constructor(terms: ModernTerms, caller: Caller, initializeResult: Message) {
    const { server, clock, way, state } = terms
    this.#terms = terms
    this.initializeResult = initializeResult
    this.#session = new KeptSession(caller.initializeParams, initializeResult, state, {
      ping: (signal) => terms.discover.renew(signal),
      subscribed: () => this.#listener.refresh(),
    })
    this.#listener = new ModernListener({
      clock,
      subscribe: way.subscribe,
      meta: () => this.#session.meta,
      capabilities: initializeResult.value.capabilities,
      resources: () => state.subscriptions,
      receive: (message) => caller.receive(server, message),
    })
    if (state.subscriptions.size > 0) this.#restore()
  }

  get isAskedToRemember(): boolean {
    return !this.#terms.state.isEmpty
  }

  get ended(): AbortSignal {
    return this.#end.signal
  }

  exchange(call: Call): Promise<Outcome> {
    if (this.ended.aborted) {
      return Promise.resolve({ kind: 'failed', error: this.ended.reason as GatewayError })
    }
    const self = isModern(call.message.value)
    const own = self ? undefined : this.#session.answer(call)
    if (own !== undefined) return own
    // A call may make the server tell something at once, and not as a part of the call.
    const { opening } = this.#listener
    return opening === undefined ? this.#exchange(call, self) : opening.then(() => this.#exchange(call, self))
  }

  /** `self`: the request says on its own what a session would know. */
  #exchange(call: Call, self: boolean): Promise<Outcome> {
    const { message, method, caller } = call
    const { tasks } = this.#terms
    const refused = tasks?.refusal(call)
    if (refused !== undefined) return Promise.resolve(refused)
    const text = self ? message.text : withMeta(message.text, this.#session.meta)
    const sent = this.#terms.way.send(call, text, call.id)
    const isTold = tasks !== undefined && (call.tool !== undefined || method === 'tasks/list')
    const sending = isTold ? sent.then((outcome) => tasks.answered(call, outcome)) : sent
    if (method === 'tools/list') return sending.then((outcome) => this.#learn(call, outcome))
    if (caller.era === 'modern') return sending
    return sending.then((outcome) => this.#translate(call, text, outcome))
  }

  /** A message outside of calls has no place in this era: it is dropped. */
  post(): Promise<void> {
    return this.ended.aborted ? Promise.reject(this.ended.reason) : Promise.resolve()
  }

  relisten(anew: boolean): void {
    this.#listener.relisten(anew)
  }

  listen(): void {
    this.#listener.start()
  }

  close(): Promise<void> {
    this.end(gatewayError('cancelled', 'the upstream session was closed'))
    return Promise.resolve()
  }

  /** The upstream session is over, and why. */
  end(error: GatewayError): void {
    if (this.ended.aborted) return
    // The server may have died of what it was asked for, and others need the server.
    if (this.#isRestoring && error.reason !== 'cancelled') this.#terms.state.forget()
    this.#listener.close()
    this.#end.abort(error)
    this.#terms.way.abandon(error)
  }

  #restore(): void {
    this.#isRestoring = true
    this.#listener.start()
    void this.#listener.opening?.then(() => (this.#isRestoring = false))
  }

  #learn(call: Call, outcome: Outcome): Outcome {
    if (outcome.kind !== 'answered') return outcome
    this.#terms.tools.learn(outcome.result.value)
    return call.caller.era === 'modern' ? outcome : withLegacySchemas(outcome)
  }

  /** A reply in the words of a caller of the legacy era. */
  #translate(call: Call, text: string, outcome: Outcome) {
    const { clock, tools, way } = this.#terms
    const translated = (last: Outcome) => {
      if (last.kind !== 'answered') return last
      if (call.tool !== undefined) return withLegacyContent(last, tools.wraps(call.tool))
      return call.method === 'resources/read' ? withLegacyError(last) : last
    }
    if (!asksForInput(outcome)) return translated(outcome)
    return answerInputs(call, text, outcome, {
      clock,
      newId: () => `breakwater-${++this.#ids}`,
      send: (again, id) => way.send(call, again, id),
    }).then(translated)
  }
}

/** How often a server may ask again before it has to answer. */
const MAX_ROUNDS = 10

/** Most that it may ask in one round: each question is a request of its own to the caller. */
const MAX_QUESTIONS = 100

/** Before a call is repeated for a server that only wanted more time, in milliseconds. */
const PAUSE_MS: Millis = 250

interface RoundsParts {
  readonly clock: Clock
  /** An id that no other request of this upstream session has. */
  readonly newId: () => string
  /** Sends a round of the call. */
  readonly send: (text: string, id: RequestId) => Promise<Outcome>
}

/** Whether a result asks for input instead of being one. */
function asksForInput(outcome: Outcome): outcome is Extract<Outcome, { kind: 'answered' }> {
  if (outcome.kind !== 'answered') return false
  const { result } = outcome.result.value
  return isObject(result) && result.resultType === 'input_required'
}

/**
 * For a caller that does not know results which ask for input: puts what they ask to the caller as requests of
 * the server, and repeats the call with the answers until there is a result. `text` is the call as it was sent.
 */
async function answerInputs(call: Call, text: string, first: Outcome, parts: RoundsParts): Promise<Outcome> {
  let outcome = first
  for (let round = 1; asksForInput(outcome); round++) {
    if (round > MAX_ROUNDS) return broken(`the server asked for input more than ${MAX_ROUNDS} times`)
    const answers = await answersTo(call, outcome.result, parts)
    if ('kind' in answers) return answers
    const id = parts.newId()
    const state = stateOf(outcome.result.text)
    outcome = begun(await parts.send(withAnswers(withRawId(text, JSON.stringify(id)), answers, state), id))
  }
  return underOwnId(call, outcome)
}

/** The caller's answers to one round, or what becomes of the call without them. */
async function answersTo(call: Call, { text }: Message, parts: RoundsParts): Promise<Answers | Outcome> {
  const questions = questionsOf(text, parts.newId)
  if (typeof questions === 'string') return broken(questions)
  if (questions.length === 0) return pause(call, parts.clock)
  const answers = await askAll(call, questions)
  if (!('kind' in answers)) return answers
  if (answers.kind === 'aborted') return { kind: 'failed', error: { ...answers.error, sent: true } }
  const { code, data } = answers.error
  const words = `the client did not answer ${answers.method}: ${printableWords(answers.error.message, 200)}`
  const error = errorText(call.id, typeof code === 'number' ? code : INTERNAL_ERROR, words, data)
  return answered(call.id, { text: error, value: parseExactly(error) as Message['value'] }, 200)
}

async function pause(call: Call, clock: Clock): Promise<Answers | Outcome> {
  try {
    await clock.sleep(PAUSE_MS, call.signal)
    return new Map()
  } catch {
    return { kind: 'failed', error: { ...abortError(call.signal), sent: true } }
  }
}

function stateOf(text: string): string | undefined {
  const span = locate(text, ['result', 'requestState'])
  return span === undefined ? undefined : text.slice(span.start, span.end)
}

/** The call with one round's answers, and with the state that the server wants back, byte for byte. */
function withAnswers(text: string, answers: Answers, state: string | undefined): string {
  const params = locate(text, ['params'])
  if (params === undefined) return text
  const given = [...answers].map(([key, result]) => `${JSON.stringify(key)}:${result}`)
  const parts = [
    ...(given.length === 0 ? [] : [`"inputResponses":{${given.join()}}`]),
    ...(state === undefined ? [] : [`"requestState":${state}`]),
  ]
  return parts.length === 0 ? text : withMembers(text, params.start, parts.join())
}

/** The outcome of a later round: a server that turns the round down has run the rounds before it all the same. */
function begun(outcome: Outcome): Outcome {
  if (outcome.kind !== 'failed' || !wasTurnedDown(outcome.error)) return outcome
  const message = `${outcome.error.message}, after it had begun the call`
  return { kind: 'failed', error: gatewayError('upstream_refused', message, { sent: true }) }
}

/** The last round's outcome, as the answer to the call itself. */
function underOwnId(call: Call, outcome: Outcome): Outcome {
  if (outcome.kind !== 'answered') return outcome
  const { text, value, status } = outcome.result
  const own = withRawId(text, rawAt(call.message.text, ['id']))
  return { ...outcome, result: { text: own, value: { ...value, id: call.id }, status } }
}

function broken(message: string): Outcome {
  return { kind: 'failed', error: gatewayError('bad_reply', message, { sent: true }) }
}

/** Something that a server wants to know, as a request of its own. */
interface Question {
  /** Its name in the result that asked. */
  readonly key: string
  readonly id: string
  readonly request: Message
}

/** JSON texts of the results, by the names of the questions. */
type Answers = ReadonlyMap<string, string>

/** The caller's error in place of an answer, or why the answer was not waited for any longer. */
type NoAnswer =
  | { readonly kind: 'refused'; readonly method: string; readonly error: Readonly<Record<string, unknown>> }
  | { readonly kind: 'aborted'; readonly error: GatewayError }

/** The questions of a response, or why they cannot be put. */
function questionsOf(text: string, newId: () => string): Question[] | string {
  const garbled = 'the server asked for input in words that are no request'
  const asked = locate(text, ['result', 'inputRequests'])
  if (asked === undefined) return []
  if (text[asked.start] !== '{') return garbled
  const questions: Question[] = []
  for (const { key, start, end } of members(text, asked.start)) {
    if (questions.length === MAX_QUESTIONS)
      return `the server asked for more than ${MAX_QUESTIONS} inputs at once`
    const id = newId()
    const written = text.slice(start, end)
    const value = parseJson(written)
    if (!isObject(value)) return garbled
    const legacy = withElicitationId(written, value)
    const request = readMessage(withMembers(legacy, 0, `"jsonrpc":"2.0","id":${JSON.stringify(id)}`))
    if (request?.value.method === undefined) return garbled
    questions.push({ key, id, request })
  }
  return questions
}

/** The legacy era demands an id of its own for every URL that a user is asked to open; the modern one has none. */
function withElicitationId(text: string, value: Readonly<Record<string, unknown>>): string {
  const { mode, elicitationId } = paramsOf(value)
  const params = locate(text, ['params'])
  if (params === undefined || mode !== 'url' || elicitationId !== undefined) return text
  return withMembers(text, params.start, `"elicitationId":"${randomUUID()}"`)
}

/** Puts all questions to the caller at once, over the channel of its call; waits for all answers. */
function askAll(call: Call, questions: readonly Question[]): Promise<Answers | NoAnswer> {
  return new Promise((resolve) => {
    const { signal, channel } = call
    const open = new Set(questions)
    const answers = new Map<string, string>()
    const end = (result: Answers | NoAnswer) => {
      signal.removeEventListener('abort', aborted)
      for (const { id } of open) void channel.send(withdrawal(id))
      open.clear()
      resolve(result)
    }
    const aborted = () => end({ kind: 'aborted', error: abortError(signal) })
    if (signal.aborted) {
      open.clear()
      return aborted()
    }
    signal.addEventListener('abort', aborted)
    for (const question of questions) {
      const { key, request } = question
      void channel.send(request, (text) => {
        if (!open.delete(question)) return Promise.resolve()
        const error = readMessage(text)?.value.error
        if (isObject(error)) end({ kind: 'refused', method: request.value.method as string, error })
        else answers.set(key, rawAt(text, ['result']))
        if (open.size === 0) end(answers)
        return Promise.resolve()
      })
    }
  })
}

function withdrawal(requestId: string): Message {
  const params = { requestId, reason: 'the call is over' }
  const method = 'notifications/cancelled'
  return { text: notificationText(method, params), value: { jsonrpc: '2.0', method, params } }
}

type Answered = Extract<Outcome, { kind: 'answered' }>

/** A list of tools without output schemas that the legacy era does not know; the same bytes when there are none. */
function withLegacySchemas(outcome: Answered): Outcome {
  const { text, value } = outcome.result
  const { tools } = isObject(value.result) ? value.result : {}
  const list = locate(text, ['result', 'tools'])
  const known = Array.isArray(tools) && !tools.some((tool) => isObject(tool) && isWider(tool.outputSchema))
  if (list === undefined || text[list.start] !== '[' || known) return outcome
  const edits = [...elements(text, list.start)].map(({ start, end }, index) => {
    const tool: unknown = (tools as unknown[])[index]
    const entry = text.slice(start, end)
    return { start, end, with: isObject(tool) ? legacyTool(entry, tool) : entry }
  })
  return rewritten(outcome, splice(text, edits))
}

/**
 * A tool's result whose structured content is an object, as the legacy era wants it. `wraps`: what its schema
 * says; undefined when there is none.
 */
function withLegacyContent(outcome: Answered, wraps: boolean | undefined): Outcome {
  const { result } = outcome.result.value
  const { structuredContent } = isObject(result) ? result : {}
  if (structuredContent === undefined || !(wraps ?? !isObject(structuredContent))) return outcome
  const { text } = outcome.result
  const span = locate(text, ['result', 'structuredContent'])
  if (span === undefined) return outcome
  const wrapped = `{"result":${text.slice(span.start, span.end)}}`
  return rewritten(outcome, text.slice(0, span.start) + wrapped + text.slice(span.end))
}

/** The legacy era's code for a resource that is not there; the modern era calls the resource invalid params. */
const RESOURCE_NOT_FOUND = -32002
const INVALID_PARAMS = -32602

/** The error for a resource that is not there, under its legacy code; every other outcome as it is. */
export function withLegacyError(outcome: Answered): Outcome {
  const { error } = outcome.result.value
  const { code, data } = isObject(error) ? error : {}
  if (code !== INVALID_PARAMS || !isObject(data) || !('uri' in data)) return outcome
  const { text } = outcome.result
  const span = locate(text, ['error', 'code'])
  if (span === undefined) return outcome
  return rewritten(outcome, splice(text, [edit(span, String(RESOURCE_NOT_FOUND))]))
}

function rewritten(outcome: Answered, text: string): Outcome {
  return { ...outcome, result: { ...outcome.result, text, value: parseExactly(text) as Message['value'] } }
}
