import type { Asking } from '../../mesh/asking.ts'
import type { Message } from '../../mesh/call.ts'
import { errorText, isObject, METHOD_NOT_FOUND, paramsOf, resultText } from '../../protocol/jsonrpc.ts'
import { locate } from '../../protocol/json-span.ts'
import { MISSING_CAPABILITY } from '../../protocol/modern.ts'

/** What a server may ask in mid-call, and the capability by which a client says that it can answer. */
const askable: Readonly<Record<string, string>> = {
  'elicitation/create': 'elicitation',
  'sampling/createMessage': 'sampling',
  'roots/list': 'roots',
}

/** Most rounds of questions that one call may take. */
const MAX_ROUNDS = 10

interface Question {
  readonly request: Message
  readonly asking: Asking
}

/** What the server of one call asks, until the client has answered it. */
export class Questions {
  readonly #capabilities: Readonly<Record<string, unknown>>
  readonly #open = new Map<string, Question>()
  #asked = 0
  #rounds = 0

  /** `capabilities` are those of the client. */
  constructor(capabilities: Readonly<Record<string, unknown>>) {
    this.#capabilities = capabilities
  }

  /** How many the client has not answered yet. */
  get size(): number {
    return this.#open.size
  }

  /** Takes a question. False when it is not for the client to answer: then it is answered already. */
  ask(request: Message, asking: Asking): boolean {
    const method = request.value.method as string
    const reply = method === 'ping' ? resultText(0, '{}') : this.#refusal(method)
    if (reply === undefined) this.#open.set(`${method.split('/')[0]}-${++this.#asked}`, { request, asking })
    else void asking.answer(reply).catch(ignore)
    return reply === undefined
  }

  /** A result that puts the open questions to the client, which brings back `requestState` with the answers. */
  put(requestState: string): string {
    this.#rounds++
    const requests = [...this.#open].map(([key, { request }]) => `${JSON.stringify(key)}:${bare(request)}`)
    const members = [
      '"resultType":"input_required"',
      `"inputRequests":{${requests.join()}}`,
      `"requestState":${JSON.stringify(requestState)}`,
    ]
    return `{${members.join()}}`
  }

  /** Takes answers, by the keys of the questions; the text is that of the whole request that brings them. */
  answer(text: string, responses: Readonly<Record<string, unknown>>): void {
    for (const key of Object.keys(responses)) {
      const question = this.#open.get(key)
      const span = locate(text, ['params', 'inputResponses', key])
      if (question === undefined || span === undefined) continue
      this.#open.delete(key)
      void question.asking.answer(resultText(0, text.slice(span.start, span.end))).catch(ignore)
    }
  }

  /** The server takes a question back: the client is not asked again, and an answer to it is dropped. */
  withdraw(notification: Message): void {
    const { requestId } = paramsOf(notification.value)
    for (const [key, { request, asking }] of this.#open) {
      if (request.value.id !== requestId) continue
      this.#open.delete(key)
      return asking.withdrawn?.()
    }
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

/** A request as `inputRequests` holds it: method and params, no envelope. */
function bare({ text, value }: Message): string {
  const params = locate(text, ['params'])
  const method = JSON.stringify(value.method)
  return params === undefined
    ? `{"method":${method}}`
    : `{"method":${method},"params":${text.slice(params.start, params.end)}}`
}

/** The server that asked is gone: its call ends by itself. */
function ignore(): void {}
