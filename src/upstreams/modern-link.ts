import type { Call, Caller, Message, Outcome, RequestId } from '../mesh/call.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import {
  errorText,
  INVALID_PARAMS,
  isObject,
  METHOD_NOT_FOUND,
  paramsOf,
  resultText,
} from '../protocol/jsonrpc.ts'
import type { Discover } from './discover.ts'
import { HttpExchange, type ExchangeOptions } from './http-exchange.ts'
import { answered } from './http-status.ts'
import type { HttpOptions } from './http.ts'
import type { HttpWire } from './http-wire.ts'
import { answerInputs, asksForInput } from './input-rounds.ts'
import { ModernListener } from './modern-listener.ts'
import { isModern, metaOf, mirrorHeaders, withMeta } from './modern-request.ts'
import { withLegacyContent, withLegacySchemas } from './legacy-output.ts'
import type { ToolFacts } from './tool-facts.ts'
import type { Link } from './upstream.ts'

/** Most resources that one caller may subscribe to. */
const MAX_SUBSCRIPTIONS = 1_024

export interface ModernTerms {
  readonly options: HttpOptions
  readonly wire: HttpWire
  readonly discover: Discover
  readonly tools: ToolFacts
}

/**
 * A caller's conversation with a server of the modern era, which knows nothing of conversations: each request
 * says all that a session used to know, and what the server used to keep for a caller is kept here.
 */
export class ModernLink implements Link {
  readonly greeting: Message
  readonly #terms: ModernTerms
  readonly #caller: Caller
  readonly #exchangeOptions: ExchangeOptions
  readonly #end = new AbortController()
  readonly #subscriptions = new Set<string>()
  readonly #listener: ModernListener
  #meta: string
  #ids = 0

  constructor(terms: ModernTerms, caller: Caller, greeting: Message) {
    const { server, clock, maxReply, onVersionError } = terms.options
    this.#terms = terms
    this.#caller = caller
    this.greeting = greeting
    this.#meta = metaOf(caller.hello)
    const post = () => this.post()
    this.#exchangeOptions = { clock, maxReply, post, stateless: true, onVersionError }
    this.#listener = new ModernListener({
      clock,
      maxReply,
      wire: terms.wire,
      meta: () => this.#meta,
      capabilities: greeting.value.capabilities,
      resources: this.#subscriptions,
      receive: (message) => caller.receive(server, message),
    })
  }

  get ended(): AbortSignal {
    return this.#end.signal
  }

  exchange(call: Call): Promise<Outcome> {
    if (this.ended.aborted)
      return Promise.resolve({ kind: 'failed', error: this.ended.reason as GatewayError })
    const { message, record } = call
    const self = isModern(message.value)
    const own = self ? undefined : this.#ofSession(call)
    if (own !== undefined) return own
    record.sent = true
    const text = self ? message.text : withMeta(message.text, this.#meta)
    const headers = this.#headers(call, self)
    const sending = this.#send(call, text, call.id, headers)
    if (call.method === 'tools/list') return sending.then((outcome) => this.#learn(call, outcome))
    return call.caller.takesInputRequired
      ? sending
      : sending.then((outcome) => this.#translate(call, text, headers, outcome))
  }

  /** A message outside of calls has no place in this era: it is dropped. */
  post(): Promise<void> {
    return this.ended.aborted ? Promise.reject(this.ended.reason) : Promise.resolve()
  }

  listen(): Promise<void> {
    return this.#listener.start()
  }

  close(): Promise<void> {
    if (!this.ended.aborted) {
      this.#listener.close()
      this.#end.abort(gatewayError('cancelled', 'the conversation was closed'))
    }
    return Promise.resolve()
  }

  /** Answers what belongs to a session, and thus to us. */
  #ofSession(call: Call): Promise<Outcome> | undefined {
    const { level, uri } = paramsOf(call.message.value)
    const { logging, resources } = this.#capabilities
    switch (call.method) {
      case 'ping':
        return this.#ping(call)
      case 'logging/setLevel':
        if (logging === undefined || typeof level !== 'string') return Promise.resolve(unknownMethod(call))
        this.#meta = metaOf(this.#caller.hello, level)
        return Promise.resolve(done(call))
      case 'resources/subscribe':
      case 'resources/unsubscribe':
        if (!isObject(resources) || resources.subscribe !== true || typeof uri !== 'string') {
          return Promise.resolve(unknownMethod(call))
        }
        return this.#subscribe(call, uri)
      default:
        return undefined
    }
  }

  /** Whether the server is there, it says by saying who it is. */
  #ping(call: Call): Promise<Outcome> {
    this.#terms.discover.forget()
    return this.#terms.discover.greeting(call.signal).then(
      () => done(call),
      (error: GatewayError) => ({ kind: 'failed', error }),
    )
  }

  async #subscribe(call: Call, uri: string): Promise<Outcome> {
    if (call.method === 'resources/unsubscribe') this.#subscriptions.delete(uri)
    else if (this.#subscriptions.size < MAX_SUBSCRIPTIONS) this.#subscriptions.add(uri)
    else return refusal(call, INVALID_PARAMS, `too many subscriptions (limit ${MAX_SUBSCRIPTIONS})`)
    await this.#listener.refresh()
    return done(call)
  }

  #send(
    call: Call,
    text: string,
    id: RequestId,
    headers: Readonly<Record<string, string>>,
  ): Promise<Outcome> {
    const { signal, channel } = call
    const request = { id, text, headers, signal, channel }
    // Without a session none can be lost.
    return HttpExchange.run(this.#terms.wire, request, this.#exchangeOptions) as Promise<Outcome>
  }

  #headers({ message, tool, headers }: Call, self: boolean): Record<string, string> {
    const { value } = message
    const mirrored =
      self || tool === undefined ? undefined : this.#terms.tools.headers(tool, paramsOf(value).arguments)
    return { ...mirrorHeaders(value), ...mirrored, ...headers }
  }

  #learn(call: Call, outcome: Outcome): Outcome {
    if (outcome.kind !== 'answered') return outcome
    this.#terms.tools.learn(outcome.result.value)
    return call.caller.takesInputRequired ? outcome : withLegacySchemas(outcome)
  }

  /** A reply in the words of a caller of the legacy era. */
  #translate(call: Call, text: string, headers: Readonly<Record<string, string>>, outcome: Outcome) {
    const { tools, options } = this.#terms
    const translated = (last: Outcome) => {
      const isTool = last.kind === 'answered' && call.tool !== undefined
      return isTool ? withLegacyContent(last, tools.wraps(call.tool)) : last
    }
    if (!asksForInput(outcome)) return translated(outcome)
    return answerInputs(call, text, outcome, {
      clock: options.clock,
      newId: () => `breakwater-${++this.#ids}`,
      send: (again, id) => this.#send(call, again, id, headers),
    }).then(translated)
  }

  get #capabilities(): Readonly<Record<string, unknown>> {
    const { capabilities } = this.greeting.value
    return isObject(capabilities) ? capabilities : {}
  }
}

function done(call: Call): Outcome {
  return local(call, resultText(call.id, '{}'))
}

function unknownMethod(call: Call): Outcome {
  return refusal(call, METHOD_NOT_FOUND, 'the server does not offer this')
}

function refusal(call: Call, code: number, message: string): Outcome {
  return local(call, errorText(call.id, code, message))
}

function local({ id }: Call, text: string): Outcome {
  return answered(id, { text, value: JSON.parse(text) as Message['value'] }, 200)
}
