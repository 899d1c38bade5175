import type { Asking } from '../mesh/asking.ts'
import type { Message } from '../mesh/call.ts'
import { isObject, isRequestId, paramsOf } from '../protocol/jsonrpc.ts'
import { replaceAt } from '../protocol/json-span.ts'

/** A request of a server that the agent has not answered yet. */
interface Question {
  readonly server: string
  /** The server's own id and progress token. */
  readonly id: unknown
  readonly progressToken: unknown
  readonly asking: Asking
  /** The call in the course of which it was asked; undefined when it was in none. */
  readonly call: object | undefined
}

/** Most questions that one agent may owe an answer to. */
const MAX_OPEN = 1_000

/**
 * What servers asked an agent. Servers count their requests each for itself, so the agent sees ids of
 * ours, and its answers find back by them. What was asked in the course of a call ends with it.
 */
export class Asked {
  readonly #open = new Map<unknown, Question>()
  /** Our ids of what was asked in the course of calls that go on. */
  readonly #byCall = new Map<object, Set<string>>()
  #count = 0

  /** How many questions wait for an answer. */
  get size(): number {
    return this.#open.size
  }

  /** Whether the agent owes so many answers that it is asked nothing more. */
  get isFull(): boolean {
    return this.#open.size >= MAX_OPEN
  }

  /** The request under an id of ours. */
  ask(server: string, request: Message, asking: Asking, call?: object): string {
    const id = `breakwater-${++this.#count}`
    const meta = paramsOf(request.value)._meta
    const progressToken = isObject(meta) ? meta.progressToken : undefined
    this.#open.set(id, { server, id: request.value.id, progressToken, asking, call })
    if (call !== undefined) {
      const ids = this.#byCall.get(call)
      if (ids === undefined) this.#byCall.set(call, new Set([id]))
      else ids.add(id)
    }
    const text = replaceAt(request.text, ['id'], id)
    return progressToken === undefined ? text : replaceAt(text, ['params', '_meta', 'progressToken'], id)
  }

  /** Takes the agent's answer back to its server. False when nobody asked, or nobody waits any more. */
  async answer(response: Message): Promise<boolean> {
    const question = this.#take(response.value.id)
    if (question === undefined) return false
    await question.asking.answer(response.text)
    return true
  }

  /** A call has ended: nobody waits for the answers to what was asked in its course. */
  end(call: object): void {
    const ids = this.#byCall.get(call)
    if (ids === undefined) return
    this.#byCall.delete(call)
    for (const id of ids) this.#open.delete(id)
  }

  /** The agent's progress on a question, in the server's words; undefined when nobody asked to be told. */
  progress(notification: Message): { server: string; text: string } | undefined {
    const question = this.#open.get(paramsOf(notification.value).progressToken)
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
      this.#take(id)
      question.asking.withdrawn?.()
      return replaceAt(notification.text, ['params', 'requestId'], id)
    }
    return undefined
  }

  /** By an id as the agent gives it, which may be anything. */
  #take(id: unknown): Question | undefined {
    const question = this.#open.get(id)
    if (question === undefined) return undefined
    this.#open.delete(id)
    if (question.call !== undefined) this.#byCall.get(question.call)?.delete(id as string)
    return question
  }
}
