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

/** Sends a caller's requests to a server of the modern era. */
export interface ModernWay {
  /** Sends a call as `text` with the id `id`, and follows the call to its answer. Never rejects. */
  send(call: Call, text: string, id: RequestId): Promise<Outcome>
  readonly subscribe: Subscribe
  abandon(error: GatewayError): void
}

interface ModernTerms {
  readonly server: string
  readonly clock: Clock
  readonly way: ModernWay
  readonly discover: Discover
  readonly tools: ToolCallRules
  /** The state requested by the caller, in this and earlier upstream sessions. */
  readonly state: SessionState
  /** The owners of the server's tasks; absent for a process, whose own connection checks the owners. */
  readonly tasks?: TaskBinding
}

/** A caller's session with a modern server: requests carry all session facts, and Breakwater keeps the state. */
export class ModernSession implements UpstreamSession {
  readonly keepsState = false
  readonly initializeResult: Message
  readonly #terms: ModernTerms
  readonly #end = new AbortController()
  readonly #session: KeptSession
  readonly #listener: ModernListener
  /** Whether the server has not yet accepted the subscriptions restored from an earlier session. */
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
    // Waits until the subscription is open: the call may at once cause a notification outside of the call.
    const { opening } = this.#listener
    return opening === undefined ? this.#exchange(call, self) : opening.then(() => this.#exchange(call, self))
  }

  /** `self`: the request itself carries the session facts. */
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

  /** Drops the message: messages outside of calls do not exist in this era. */
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

  end(error: GatewayError): void {
    if (this.ended.aborted) return
    // The restored subscriptions may have crashed the server, which other callers need. They are not restored again.
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

  /** Converts a reply for a caller of the legacy era. */
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

/** Most rounds of questions before a server must answer. */
const MAX_ROUNDS = 10

/** Most questions per round: each becomes a request to the caller. */
const MAX_QUESTIONS = 100

/** Pause before repeating a call when the server asked no questions but needs more time, in milliseconds. */
const PAUSE_MS: Millis = 250

interface RoundsParts {
  readonly clock: Clock
  /** Returns an id unique in this upstream session. */
  readonly newId: () => string
  readonly send: (text: string, id: RequestId) => Promise<Outcome>
}

function asksForInput(outcome: Outcome): outcome is Extract<Outcome, { kind: 'answered' }> {
  if (outcome.kind !== 'answered') return false
  const { result } = outcome.result.value
  return isObject(result) && result.resultType === 'input_required'
}

/**
 * Serves callers without support for input requests: sends the questions to the caller as server requests, and repeats
 * the call with the answers until a result comes. `text` is the call as sent.
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

/** Returns the caller's answers to one round of questions, or the outcome of the call if the answers do not come. */
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

/** Returns the call with a round's answers and the server's state, byte for byte. */
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

/**
 * Converts the outcome of a later round. If the server refuses, the error says that the call has begun: earlier rounds
 * have run.
 */
function begun(outcome: Outcome): Outcome {
  if (outcome.kind !== 'failed' || !wasTurnedDown(outcome.error)) return outcome
  const message = `${outcome.error.message}, after it had begun the call`
  return { kind: 'failed', error: gatewayError('upstream_refused', message, { sent: true }) }
}

/** Converts the last round's outcome into the answer to the call. */
function underOwnId(call: Call, outcome: Outcome): Outcome {
  if (outcome.kind !== 'answered') return outcome
  const { text, value, status } = outcome.result
  const own = withRawId(text, rawAt(call.message.text, ['id']))
  return { ...outcome, result: { text: own, value: { ...value, id: call.id }, status } }
}

function broken(message: string): Outcome {
  return { kind: 'failed', error: gatewayError('bad_reply', message, { sent: true }) }
}

interface Question {
  /** The key of the question in the result's `inputRequests`. */
  readonly key: string
  readonly id: string
  readonly request: Message
}

/** JSON texts of the results, by question key. */
type Answers = ReadonlyMap<string, string>

/** The caller's error instead of an answer, or why the wait ended. */
type NoAnswer =
  | { readonly kind: 'refused'; readonly method: string; readonly error: Readonly<Record<string, unknown>> }
  | { readonly kind: 'aborted'; readonly error: GatewayError }

/** Returns the questions of a response, or why they are invalid. */
function questionsOf(text: string, newId: () => string): Question[] | string {
  const garbled = 'the server asked for input without a valid request'
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

/**
 * Adds an id to a question that asks the user to open a URL: the legacy era requires this id, the modern era has none.
 */
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

/**
 * Wraps each output schema that is not of type `object`, as the legacy era demands, in an object with the member `result`.
 * A list without such schemas keeps its bytes.
 */
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
 * Makes structured content an object for the legacy era. `wraps`: whether the tool's schema requires wrapping;
 * undefined without a schema.
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

/** The legacy code for a missing resource; the modern era uses invalid params. */
const RESOURCE_NOT_FOUND = -32002
const INVALID_PARAMS = -32602

/** Returns the error for a missing resource under its legacy code; other outcomes unchanged. */
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
