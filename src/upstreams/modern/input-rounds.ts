import { randomUUID } from 'node:crypto'
import type { Call, Message, Outcome, RequestId } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { parseExactly } from '../../protocol/json-parse.ts'
import { locate, members } from '../../protocol/json-span.ts'
import {
  errorText,
  INTERNAL_ERROR,
  isObject,
  notificationText,
  paramsOf,
  parseJson,
  readMessage,
} from '../../protocol/jsonrpc.ts'
import { printableWords } from '../../telemetry/printable.ts'
import { abortError } from '../failure.ts'
import { answered } from '../http/http-status.ts'
import { rawAt, withRawId } from '../pipe/renumber.ts'
import { withMembers } from './modern-request.ts'

/** How often a server may ask again before it has to answer. */
const MAX_ROUNDS = 10

/** Before a call is repeated for a server that only wanted more time, in milliseconds. */
const PAUSE_MS: Millis = 250

interface RoundsParts {
  readonly clock: Clock
  /** An id that no other request of this conversation has. */
  readonly newId: () => string
  /** Sends a round of the call. */
  readonly send: (text: string, id: RequestId) => Promise<Outcome>
}

/** Whether a result asks for input instead of being one. */
export function asksForInput(outcome: Outcome): outcome is Extract<Outcome, { kind: 'answered' }> {
  if (outcome.kind !== 'answered') return false
  const { result } = outcome.result.value
  return isObject(result) && result.resultType === 'input_required'
}

/**
 * For a caller that does not know results which ask for input: puts what they ask to the caller as requests of
 * the server, and repeats the call with the answers until there is a result. `text` is the call as it was sent.
 */
export async function answerInputs(
  call: Call,
  text: string,
  first: Outcome,
  parts: RoundsParts,
): Promise<Outcome> {
  let outcome = first
  for (let round = 1; asksForInput(outcome); round++) {
    if (round > MAX_ROUNDS) return broken(`the server asked for input more than ${MAX_ROUNDS} times`)
    const answers = await answersTo(call, outcome.result, parts)
    if ('kind' in answers) return answers
    const id = parts.newId()
    const state = stateOf(outcome.result.text)
    outcome = await parts.send(withAnswers(withRawId(text, JSON.stringify(id)), answers, state), id)
  }
  return underOwnId(call, outcome)
}

/** The caller's answers to one round, or what becomes of the call without them. */
async function answersTo(call: Call, { text }: Message, parts: RoundsParts): Promise<Answers | Outcome> {
  const questions = questionsOf(text, parts.newId)
  if (questions === undefined) return broken('the server asked for input in words that are no request')
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

/** What the caller said instead of an answer, or why it was not waited for any longer. */
type NoAnswer =
  | { readonly kind: 'refused'; readonly method: string; readonly error: Readonly<Record<string, unknown>> }
  | { readonly kind: 'aborted'; readonly error: GatewayError }

/** The questions of a response; undefined when they are none. */
function questionsOf(text: string, newId: () => string): Question[] | undefined {
  const asked = locate(text, ['result', 'inputRequests'])
  if (asked === undefined) return []
  if (text[asked.start] !== '{') return undefined
  const questions: Question[] = []
  for (const { key, start, end } of members(text, asked.start)) {
    const id = newId()
    const written = text.slice(start, end)
    const value = parseJson(written)
    if (!isObject(value)) return undefined
    const legacy = withElicitationId(written, value)
    const request = readMessage(withMembers(legacy, 0, `"jsonrpc":"2.0","id":${JSON.stringify(id)}`))
    if (request?.value.method === undefined) return undefined
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
