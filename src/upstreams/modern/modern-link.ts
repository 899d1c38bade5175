import type { Call, Caller, Message, Outcome, RequestId } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Link } from '../upstream.ts'
import type { Discover } from './discover.ts'
import { answerInputs, asksForInput } from './input-rounds.ts'
import { KeptSession } from './kept-session.ts'
import { withLegacyContent, withLegacyError, withLegacySchemas } from './legacy-output.ts'
import { ModernListener } from './modern-listener.ts'
import { isModern, withMeta } from './modern-request.ts'
import type { Subscribe } from './subscription.ts'
import type { TaskBinding } from './task-binding.ts'
import type { ToolFacts } from './tool-facts.ts'

/** How the requests of one caller reach a server of the modern era. */
export interface ModernWay {
  /** Sends a call as `text`, whose id is `id`, and follows it up to the answer. Never rejects. */
  send(call: Call, text: string, id: RequestId): Promise<Outcome>
  readonly subscribe: Subscribe
  /** Ends what is under way. */
  abandon(error: GatewayError): void
}

interface ModernTerms {
  /** The server's name in the registry. */
  readonly server: string
  readonly clock: Clock
  readonly way: ModernWay
  readonly discover: Discover
  readonly tools: ToolFacts
  /** Whose the server's tasks are, where nothing else tells. */
  readonly tasks?: TaskBinding
}

/**
 * A caller's conversation with a server of the modern era, which knows nothing of conversations: each request
 * says all that a session used to know, and what the server used to keep for a caller is kept here.
 */
export class ModernLink implements Link {
  readonly keepsState = false
  readonly greeting: Message
  readonly #terms: ModernTerms
  readonly #end = new AbortController()
  readonly #session: KeptSession
  readonly #listener: ModernListener
  readonly #mayMakeTasks: boolean
  #ids = 0

  constructor(terms: ModernTerms, caller: Caller, greeting: Message) {
    const { server, clock, way } = terms
    this.#terms = terms
    this.greeting = greeting
    this.#mayMakeTasks = terms.tasks?.mayMake(caller) === true
    this.#session = new KeptSession(caller.hello, greeting, {
      ping: (signal) => terms.discover.renew(signal),
      subscribed: () => this.#listener.refresh(),
    })
    this.#listener = new ModernListener({
      clock,
      subscribe: way.subscribe,
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
    const { message, method, caller } = call
    const { tasks } = this.#terms
    const refused = tasks?.refusal(call)
    if (refused !== undefined) return Promise.resolve(refused)
    const text = self ? message.text : withMeta(message.text, this.#session.meta)
    const sent = this.#terms.way.send(call, text, call.id)
    const learns = tasks !== undefined && call.tool !== undefined && this.#mayMakeTasks
    const sending = learns ? sent.then((outcome) => tasks.learn(call, outcome)) : sent
    if (method === 'tools/list') return sending.then((outcome) => this.#learn(call, outcome))
    if (caller.takesInputRequired) return sending
    return sending.then((outcome) => this.#translate(call, text, outcome))
  }

  /** A message outside of calls has no place in this era: it is dropped. */
  post(): Promise<void> {
    return this.ended.aborted ? Promise.reject(this.ended.reason) : Promise.resolve()
  }

  listen(): void {
    this.#listener.start()
  }

  close(): Promise<void> {
    this.end(gatewayError('cancelled', 'the conversation was closed'))
    return Promise.resolve()
  }

  /** The conversation is over, and why. */
  end(error: GatewayError): void {
    if (this.ended.aborted) return
    this.#listener.close()
    this.#end.abort(error)
    this.#terms.way.abandon(error)
  }

  #learn(call: Call, outcome: Outcome): Outcome {
    if (outcome.kind !== 'answered') return outcome
    this.#terms.tools.learn(outcome.result.value)
    return call.caller.takesInputRequired ? outcome : withLegacySchemas(outcome)
  }

  /** A reply in the words of a caller of the legacy era. */
  #translate(call: Call, text: string, outcome: Outcome) {
    const { clock, tools, way } = this.#terms
    const translated = (last: Outcome) => {
      if (last.kind !== 'answered') return last
      if (call.tool !== undefined) return withLegacyContent(last, tools.wraps(call.tool))
      return call.method === 'resources/read' ? withLegacyError(last) : last
    }
    if (!asksForInput(outcome)) return translated(outcome)
    return answerInputs(call, text, outcome, {
      clock,
      newId: () => `breakwater-${++this.#ids}`,
      send: (again, id) => way.send(call, again, id),
    }).then(translated)
  }
}
