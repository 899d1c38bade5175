import { randomUUID } from 'node:crypto'
import type { Call, Message } from '../../mesh/call.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import { isObject, notificationText, paramsOf, parseJson, readMessage } from '../../protocol/jsonrpc.ts'
import { locate, members } from '../../protocol/json-span.ts'
import { abortError } from '../failure.ts'
import { withMembers } from './modern-request.ts'
import { rawAt } from '../pipe/renumber.ts'

/** Something that a server wants to know, as a request of its own. */
export interface Question {
  /** Its name in the result that asked. */
  readonly key: string
  readonly id: string
  readonly request: Message
}

/** JSON texts of the results, by the names of the questions. */
export type Answers = ReadonlyMap<string, string>

/** What the caller said instead of an answer, or why it was not waited for any longer. */
export type NoAnswer =
  | { readonly kind: 'refused'; readonly method: string; readonly error: Readonly<Record<string, unknown>> }
  | { readonly kind: 'aborted'; readonly error: GatewayError }

/** The questions of a response; undefined when they are none. */
export function questionsOf(text: string, newId: () => string): Question[] | undefined {
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
export function askAll(call: Call, questions: readonly Question[]): Promise<Answers | NoAnswer> {
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
