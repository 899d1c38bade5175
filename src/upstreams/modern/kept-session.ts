import { parseExactly } from '../../protocol/json-parse.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Call, Message, Outcome } from '../../mesh/call.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import {
  errorText,
  INVALID_PARAMS,
  isObject,
  METHOD_NOT_FOUND,
  paramsOf,
  resultText,
} from '../../protocol/jsonrpc.ts'
import { answered } from '../http/http-status.ts'
import { metaOf } from './modern-request.ts'

/** Most resources that one caller may subscribe to. */
const MAX_SUBSCRIPTIONS = 1_024

export interface SessionActs {
  /** Finds out whether the server is there. Rejects with a `GatewayError`. */
  ping(signal: Signal): Promise<unknown>
  /** Other resources are subscribed to now; resolves once the server knows, as far as that goes. */
  subscribed(): Promise<void>
}

/** What a server of the legacy era would keep in mind for a caller, and one of the modern era does not. */
export class KeptSession {
  readonly #hello: Message['value']
  readonly #capabilities: Message['value']
  readonly #acts: SessionActs
  readonly #resources = new Set<string>()
  #meta: string

  constructor(hello: Message['value'], { value: { capabilities } }: Message, acts: SessionActs) {
    this.#hello = hello
    this.#capabilities = isObject(capabilities) ? capabilities : {}
    this.#acts = acts
    this.#meta = metaOf(hello)
  }

  /** The members of `_meta` which say that in each request, as JSON text. */
  get meta(): string {
    return this.#meta
  }

  /** URIs of the resources that the caller subscribed to. */
  get resources(): ReadonlySet<string> {
    return this.#resources
  }

  /** Answers a request that belongs to a session; undefined for any other. */
  answer(call: Call): Promise<Outcome> | undefined {
    const { level, uri } = paramsOf(call.message.value)
    const { logging, resources } = this.#capabilities
    switch (call.method) {
      case 'ping':
        return this.#ping(call)
      case 'logging/setLevel':
        if (logging === undefined || typeof level !== 'string') return Promise.resolve(unoffered(call))
        this.#meta = metaOf(this.#hello, level)
        return Promise.resolve(done(call))
      case 'resources/subscribe':
      case 'resources/unsubscribe': {
        const offered = isObject(resources) && resources.subscribe === true && typeof uri === 'string'
        return offered ? this.#subscribe(call, uri) : Promise.resolve(unoffered(call))
      }
      default:
        return undefined
    }
  }

  #ping(call: Call): Promise<Outcome> {
    return this.#acts.ping(call.signal).then(
      () => done(call),
      (error: GatewayError) => ({ kind: 'failed', error }),
    )
  }

  async #subscribe(call: Call, uri: string): Promise<Outcome> {
    if (call.method === 'resources/unsubscribe') this.#resources.delete(uri)
    else if (this.#resources.size < MAX_SUBSCRIPTIONS) this.#resources.add(uri)
    else return refusal(call, INVALID_PARAMS, `too many subscriptions (limit ${MAX_SUBSCRIPTIONS})`)
    await this.#acts.subscribed()
    return done(call)
  }
}

function done(call: Call): Outcome {
  return local(call, resultText(call.id, '{}'))
}

function unoffered(call: Call): Outcome {
  return refusal(call, METHOD_NOT_FOUND, 'the server does not offer this')
}

function refusal(call: Call, code: number, message: string): Outcome {
  return local(call, errorText(call.id, code, message))
}

function local({ id }: Call, text: string): Outcome {
  return answered(id, { text, value: parseExactly(text) as Message['value'] }, 200)
}
