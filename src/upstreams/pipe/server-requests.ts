import type { Answer, Caller, Message } from '../../mesh/call.ts'
import { errorText, INTERNAL_ERROR } from '../../protocol/jsonrpc.ts'
import type { Respondent, Refusal } from '../shared/audience.ts'
import { answerableId, rawAt, withRawId } from './renumber.ts'

/** How many questions a server may have open, and how many of our own answers may wait until it reads them. */
const MAX_OPEN = 1_024

interface Open extends Respondent {
  readonly answer: Answer
}

/** What the server asked, and who has not answered it yet. Each request gets exactly one answer. */
export class ServerRequests {
  readonly #send: (text: string) => Promise<void>
  /** By the exact text of the server's id. */
  readonly #open = new Map<string, Open>()
  #unread = 0

  constructor(send: (text: string) => Promise<void>) {
    this.#send = send
  }

  /** Hands a request to whoever shall answer it. */
  ask(request: Message, respondent: Respondent | Refusal): Promise<void> | undefined {
    if ('code' in respondent) return this.refuse(request, respondent)
    if (this.#open.size >= MAX_OPEN) {
      return this.refuse(request, {
        code: INTERNAL_ERROR,
        message: `too many open requests (limit ${MAX_OPEN})`,
      })
    }
    const id = answerableId(request)
    if (id === undefined) return undefined
    const answer: Answer = (text) => {
      if (this.#open.get(id) !== open) return Promise.resolve()
      this.#open.delete(id)
      return this.#send(withRawId(text, id))
    }
    const open: Open = { ...respondent, answer }
    this.#open.set(id, open)
    return respondent.deliver(request, answer)
  }

  refuse(request: Message, refusal: Refusal): undefined {
    this.answer(request, errorText(null, refusal.code, refusal.message))
  }

  /**
   * Answers a request by ourselves. Does not hold up what the server sends next: it may be unable to read
   * before it has written. An answer too many is dropped.
   */
  answer(request: Message, text: string): void {
    const id = answerableId(request)
    if (id !== undefined) this.#answer(id, text)
  }

  #answer(id: string, text: string): void {
    if (this.#unread >= MAX_OPEN) return
    this.#unread++
    const settled = () => void this.#unread--
    this.#send(withRawId(text, id)).then(settled, settled)
  }

  /** Passes on a response that bears the server's own id, if that was asked of the caller who sends it. */
  async reply(response: Message, from?: Caller): Promise<void> {
    const open = this.#open.get(rawAt(response.text, ['id']))
    if (open !== undefined && (from === undefined || open.caller === from)) await open.answer(response.text)
  }

  /** The server takes a request back: whoever has it is told. */
  cancelled(notification: Message): Promise<void> | undefined {
    const id = rawAt(notification.text, ['params', 'requestId'])
    const open = this.#open.get(id)
    this.#open.delete(id)
    return open?.deliver(notification)
  }

  /** Answers for a caller that is gone. */
  abandon(caller: Caller): void {
    for (const [id, open] of this.#open) {
      if (open.caller !== caller) continue
      this.#open.delete(id)
      this.#answer(id, errorText(null, INTERNAL_ERROR, 'the client has left'))
    }
  }
}
