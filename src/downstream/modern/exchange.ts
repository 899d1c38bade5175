import { asking } from '../../mesh/asking.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Answer, CallRecord, Channel, Message, RequestId } from '../../mesh/call.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { errorText, isObject, METHOD_NOT_FOUND, paramsOf, resultText } from '../../protocol/jsonrpc.ts'
import { locate, replaceAt } from '../../protocol/json-span.ts'
import { MISSING_CAPABILITY } from '../../protocol/modern.ts'
import type { Response } from '../respond.ts'
import type { Envelope } from './envelope.ts'
import { admits } from './levels.ts'
import type { Parking } from './parking.ts'
import type { PooledCaller } from './pool.ts'
import type { Post } from './post.ts'
import { modernise } from './results.ts'

/** What a server may ask in mid-call, and the capability by which a client says that it can answer. */
const askable: Readonly<Record<string, string>> = {
  'elicitation/create': 'elicitation',
  'sampling/createMessage': 'sampling',
  'roots/list': 'roots',
}

/** Most rounds of questions that one call may take. */
const MAX_ROUNDS = 10

/** One POST that waits for this call: its own id and progress token, and the way back. */
export interface Turn {
  readonly id: RequestId
  readonly progressToken: unknown
  readonly post: Post
}

interface Question {
  readonly request: Message
  readonly answer: Answer
}

/**
 * One call of a modern client to a server. When the server asks something in mid-call, the client's POST is
 * answered with `input_required`, the call is parked, and the POST that brings the answers takes it up again.
 */
export class Exchange {
  readonly signal = new Cancellation()
  readonly envelope: Envelope
  readonly caller: PooledCaller
  /** What the request names: a retry has to name the same. */
  readonly target: string
  readonly #parking: Parking
  readonly #questions = new Map<string, Question>()
  #turn: Turn | undefined
  #asked = 0
  #rounds = 0
  #response: Response | undefined
  #state: string | undefined

  constructor(envelope: Envelope, caller: PooledCaller, target: string, parking: Parking) {
    this.envelope = envelope
    this.caller = caller
    this.target = target
    this.#parking = parking
  }

  /** A POST begins to wait for the call. */
  begin(turn: Turn): void {
    this.#turn = turn
    if (this.#response !== undefined) this.#finish(this.#response)
    else if (this.#questions.size > 0) this.#ask()
  }

  /** The POST that waits has lost its client: nobody wants the answer any more. */
  abandon(turn: Turn): void {
    if (this.#turn === turn) this.signal.abort(gatewayError('cancelled', 'the client disconnected'))
  }

  /** The call has ended; `response` is the server's, or ours, under the id of the call. */
  end(response: Response): void {
    this.#response = response
    if (this.#state !== undefined) this.#parking.keep(this.#state)
    this.#finish(response)
  }

  /** Takes answers, by the keys of the questions; the text is that of the whole request. */
  answer(text: string, responses: Readonly<Record<string, unknown>>): void {
    for (const key of Object.keys(responses)) {
      const question = this.#questions.get(key)
      const span = locate(text, ['params', 'inputResponses', key])
      if (question === undefined || span === undefined) continue
      this.#questions.delete(key)
      void question.answer(resultText(0, text.slice(span.start, span.end))).catch(ignore)
    }
  }

  channel(record: CallRecord, clock: Pick<Clock, 'now'>): Channel {
    return {
      open: () => undefined,
      pause: () => undefined,
      send: (message, answer) => {
        if (answer !== undefined) return this.#question(message, asking(record, clock, answer))
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

  #question(request: Message, answer: Answer): undefined {
    const method = request.value.method as string
    const refuse = (code: number, why: string) => void answer(errorText(null, code, why)).catch(ignore)
    const capability = askable[method]
    if (method === 'ping') void answer(resultText(0, '{}')).catch(ignore)
    else if (capability === undefined) refuse(METHOD_NOT_FOUND, `Method not found: ${method}`)
    else if (!isObject(this.envelope.capabilities[capability])) {
      refuse(MISSING_CAPABILITY, `the client has no capability "${capability}"`)
    } else if (this.#rounds >= MAX_ROUNDS)
      refuse(METHOD_NOT_FOUND, `more than ${MAX_ROUNDS} rounds of questions`)
    else {
      this.#questions.set(`${method.split('/')[0]}-${++this.#asked}`, { request, answer })
      if (this.#turn !== undefined) this.#ask()
    }
  }

  /** Answers the POST that waits with the open questions, and parks the call until they are answered. */
  #ask(): void {
    const state = this.#parking.enter(this)
    this.#state = state
    if (state === undefined) {
      this.signal.abort(
        gatewayError('overloaded', 'too many calls wait for answers of their clients', { sent: true }),
      )
      return
    }
    this.#rounds++
    const requests = [...this.#questions].map(
      ([key, { request }]) => `${JSON.stringify(key)}:${bare(request)}`,
    )
    const members = [
      '"resultType":"input_required"',
      `"inputRequests":{${requests.join()}}`,
      `"requestState":${JSON.stringify(state)}`,
    ]
    const turn = this.#turn
    this.#turn = undefined
    if (turn !== undefined)
      turn.post.finish({ text: resultText(turn.id, `{${members.join()}}`), status: 200 })
  }

  #finish(response: Response): void {
    const turn = this.#turn
    this.#turn = undefined
    turn?.post.finish(modernise(this.envelope.method, turn.id, response))
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
