import type { Answer, Message } from '../mesh/call.ts'
import { isObject, isRequestId, paramsOf } from '../protocol/jsonrpc.ts'
import { replaceAt } from '../protocol/json-span.ts'

/** A request of a server that the agent has not answered yet. */
interface Question {
  readonly server: string
  /** The server's own id and progress token. */
  readonly id: unknown
  readonly progressToken: unknown
  readonly answer: Answer
}

/** Most questions that one agent may owe an answer to. */
const MAX_OPEN = 1_000

/**
 * What servers asked an agent. Servers count their requests each for itself, so the agent sees ids of
 * ours, and its answers find back by them.
 */
export class Asked {
  readonly #open = new Map<string, Question>()
  #count = 0

  /** The request under an id of ours; undefined when the agent owes too many answers already. */
  ask(server: string, request: Message, answer: Answer): string | undefined {
    if (this.#open.size >= MAX_OPEN) return undefined
    const id = `breakwater-${++this.#count}`
    const meta = paramsOf(request.value)._meta
    const progressToken = isObject(meta) ? meta.progressToken : undefined
    this.#open.set(id, { server, id: request.value.id, progressToken, answer })
    const text = replaceAt(request.text, ['id'], id)
    return progressToken === undefined ? text : replaceAt(text, ['params', '_meta', 'progressToken'], id)
  }

  /** Takes the agent's answer back to its server. False when nobody asked. */
  async answer(response: Message): Promise<boolean> {
    const question = this.#open.get(String(response.value.id))
    if (question === undefined) return false
    this.#open.delete(String(response.value.id))
    await question.answer(response.text)
    return true
  }

  /** The agent's progress on a question, in the server's words; undefined when nobody asked to be told. */
  progress(notification: Message): { server: string; text: string } | undefined {
    const token = paramsOf(notification.value).progressToken
    const question = this.#open.get(String(token))
    if (question?.progressToken === undefined) return undefined
    return {
      server: question.server,
      text: replaceAt(notification.text, ['params', 'progressToken'], question.progressToken),
    }
  }

  /** A server takes its question back; the text tells the agent, under our id. */
  withdraw(server: string, notification: Message): string | undefined {
    const theirs = paramsOf(notification.value).requestId
    if (!isRequestId(theirs)) return undefined
    for (const [id, question] of this.#open) {
      if (question.server !== server || question.id !== theirs) continue
      this.#open.delete(id)
      return replaceAt(notification.text, ['params', 'requestId'], id)
    }
    return undefined
  }
}
