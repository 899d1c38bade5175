import type { Call, Caller, Message, Outcome, RequestId } from '../mesh/call.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import { paramsOf } from '../protocol/jsonrpc.ts'
import type { Discover } from './discover.ts'
import { HttpExchange, type ExchangeOptions } from './http-exchange.ts'
import type { HttpOptions } from './http.ts'
import type { HttpWire } from './http-wire.ts'
import { answerInputs, asksForInput } from './input-rounds.ts'
import { ModernListener } from './modern-listener.ts'
import { KeptSession } from './kept-session.ts'
import { isModern, mirrorHeaders, withMeta } from './modern-request.ts'
import { withLegacyContent, withLegacySchemas } from './legacy-output.ts'
import type { ToolFacts } from './tool-facts.ts'
import type { Link } from './upstream.ts'

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
  readonly #exchangeOptions: ExchangeOptions
  readonly #underWay = new Set<HttpExchange>()
  readonly #end = new AbortController()
  readonly #session: KeptSession
  readonly #listener: ModernListener
  #ids = 0

  constructor(terms: ModernTerms, caller: Caller, greeting: Message) {
    const { server, clock, maxReply, onVersionError } = terms.options
    this.#terms = terms
    this.greeting = greeting
    this.#session = new KeptSession(caller.hello, greeting, {
      ping: (signal) => terms.discover.renew(signal),
      subscribed: () => this.#listener.refresh(),
    })
    const post = () => this.post()
    this.#exchangeOptions = { clock, maxReply, underWay: this.#underWay, post, stateless: true, onVersionError }
    this.#listener = new ModernListener({
      clock,
      maxReply,
      wire: terms.wire,
      meta: () => this.#session.meta,
      capabilities: greeting.value.capabilities,
      resources: this.#session.resources,
      receive: (message) => caller.receive(server, message),
    })
  }

  get ended(): AbortSignal {
    return this.#end.signal
  }

  exchange(call: Call): Promise<Outcome> {
    if (this.ended.aborted) {
      return Promise.resolve({ kind: 'failed', error: this.ended.reason as GatewayError })
    }
    const self = isModern(call.message.value)
    const own = self ? undefined : this.#session.answer(call)
    if (own !== undefined) return own
    // A call may make the server tell something at once, and not as a part of the call.
    const { opening } = this.#listener
    return opening === undefined ? this.#exchange(call, self) : opening.then(() => this.#exchange(call, self))
  }

  /** `self`: the request says on its own what a session would know. */
  #exchange(call: Call, self: boolean): Promise<Outcome> {
    const { message, record, method, caller } = call
    record.sent = true
    const text = self ? message.text : withMeta(message.text, this.#session.meta)
    const headers = this.#headers(call, self)
    const sending = this.#send(call, text, call.id, headers)
    if (method === 'tools/list') return sending.then((outcome) => this.#learn(call, outcome))
    if (caller.takesInputRequired) return sending
    return sending.then((outcome) => this.#translate(call, text, headers, outcome))
  }

  /** A message outside of calls has no place in this era: it is dropped. */
  post(): Promise<void> {
    return this.ended.aborted ? Promise.reject(this.ended.reason) : Promise.resolve()
  }

  listen(): void {
    this.#listener.start()
  }

  close(): Promise<void> {
    if (this.ended.aborted) return Promise.resolve()
    const error = gatewayError('cancelled', 'the conversation was closed')
    this.#listener.close()
    this.#end.abort(error)
    for (const exchange of this.#underWay) exchange.abandon(error)
    return Promise.resolve()
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
}
