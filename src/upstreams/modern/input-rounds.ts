import { parseExactly } from '../../protocol/json-parse.ts'
import type { Call, Message, Outcome, RequestId } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { errorText, INTERNAL_ERROR, isObject } from '../../protocol/jsonrpc.ts'
import { printableWords } from '../../telemetry/printable.ts'
import { locate } from '../../protocol/json-span.ts'
import { abortError } from '../failure.ts'
import { answered } from '../http/http-status.ts'
import { askAll, questionsOf, type Answers } from './input-questions.ts'
import { withMembers } from './modern-request.ts'
import { rawAt, withRawId } from '../pipe/renumber.ts'

/** How often a server may ask again before it has to answer. */
const MAX_ROUNDS = 10

/** Before a call is repeated for a server that only wanted more time, in milliseconds. */
const PAUSE_MS: Millis = 250

export interface RoundsParts {
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
