import { asking, type Asking } from '../../mesh/asking.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { CallRecord, Channel, Message, RequestId, WireReply } from '../../mesh/call.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { paramsOf, resultText } from '../../protocol/jsonrpc.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import { gatewayErrorText, type Response } from '../respond.ts'
import type { Envelope } from './envelope.ts'
import { admits } from './levels.ts'
import type { Parking } from './parking.ts'
import type { PooledCaller } from './pool.ts'
import type { Post } from './post.ts'
import { Questions } from './questions.ts'
import { modernise } from './results.ts'

/** One POST that waits for this call: its own id and progress token, and the way back. */
export interface Turn {
  readonly id: RequestId
  readonly progressToken: unknown
  readonly post: Post
}

interface KeptAnswer {
  readonly text: Buffer
  readonly status: number
  readonly wire: WireReply | undefined
}

/**
 * One call of a modern client to a server. When the server asks something in mid-call, the client's POST is
 * answered with `input_required`, the call is parked, and the POST that brings the answers takes it up again.
 */
export class Exchange {
  readonly signal = new Cancellation()
  /** Of the first POST of the call; its id, which may be of any length, only until the answer waits for another POST. */
  envelope: Envelope
  readonly caller: PooledCaller
  /** What the request names: a retry has to name the same. */
  readonly target: string
  /** The client that it came from. */
  readonly client: string
  readonly #parking: Parking
  #turn: Turn | undefined
  /** Most servers ask nothing. */
  #questions: Questions | undefined
  /** The answer, while no POST waits for it: as bytes, which keep nothing but themselves. */
  #kept: KeptAnswer | undefined
  #state: string | undefined

  constructor(envelope: Envelope, caller: PooledCaller, client: string, target: string, parking: Parking) {
    this.envelope = envelope
    this.caller = caller
    this.client = client
    this.target = target
    this.#parking = parking
  }

  /** A POST begins to wait for the call. */
  begin(turn: Turn): void {
    this.#turn = turn
    if (this.#kept !== undefined) this.#finish(read(this.#kept), turn)
    else if (this.#questions !== undefined && this.#questions.size > 0) this.#ask(this.#questions, turn)
  }

  /** The POST that waits has lost its client: nobody wants the answer any more. */
  abandon(turn: Turn): void {
    if (this.#turn === turn) this.signal.abort(gatewayError('cancelled', 'the client disconnected'))
  }

  /** The call has ended; `response` is the server's, or ours, under the id of the call. */
  end(response: Response, record: CallRecord): void {
    if (this.#turn !== undefined) return this.#finish(response, this.#turn)
    const { text, status, wire } = response
    const bytes = Buffer.byteLength(text) + Buffer.byteLength(wire?.body ?? '')
    const full = this.#state === undefined ? undefined : this.#parking.keep(this.#state, bytes)
    this.#kept =
      full === undefined
        ? { text: Buffer.from(text), status, wire }
        : { text: Buffer.from(gatewayErrorText(0, full, { record })), status: 200, wire: undefined }
    // Nobody answers them any more.
    this.#questions = undefined
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
        if (answer !== undefined) return this.#question(message, asking(record, clock, answer))
        if (message.value.method === 'notifications/cancelled') return void this.#questions?.withdraw(message)
        const text = this.#notification(message)
        if (text === undefined || this.#turn === undefined) return undefined
        record.firstByteAt ??= clock.now()
        return this.#turn.post.send(text)
      },
    }
  }

  #notification(message: Message): string | undefined {
    switch (message.value.method) {
      case 'notifications/progress':
        return this.#turn?.progressToken === undefined
          ? undefined
          : replaceAt(message.text, ['params', 'progressToken'], this.#turn.progressToken)
      case 'notifications/message':
        return admits(this.envelope.logLevel, paramsOf(message.value).level) ? message.text : undefined
      default:
        return undefined
    }
  }

  #question(request: Message, asking: Asking): undefined {
    this.#questions ??= new Questions(this.envelope.capabilities)
    if (this.#questions.ask(request, asking) && this.#turn !== undefined)
      this.#ask(this.#questions, this.#turn)
  }

  /** Answers the POST that waits with the open questions, and parks the call until they are answered. */
  #ask(questions: Questions, turn: Turn): void {
    const state = this.#parking.enter(this)
    if (typeof state !== 'string') return this.signal.abort({ ...state, sent: true })
    this.#state = state
    this.#turn = undefined
    turn.post.finish({ text: resultText(turn.id, questions.put(state)), status: 200 })
  }

  #finish(response: Response, turn: Turn): void {
    this.#kept = this.#turn = undefined
    turn.post.finish(modernise(this.envelope.method, turn.id, response))
  }
}

function read({ text, status, wire }: KeptAnswer): Response {
  const response = { text: text.toString(), status }
  return wire === undefined ? response : { ...response, wire }
}
