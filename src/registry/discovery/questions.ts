import type { Signal } from '../../mesh/cancel.ts'
import { newRecord, type Call, type Caller, type Layer } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { isObject, METHOD_NOT_FOUND, requestText } from '../../protocol/jsonrpc.ts'
import type { Link } from '../../upstreams/upstream.ts'
import type { Ask } from '../catalog.ts'
import { printableWords } from '../../telemetry/printable.ts'

/** What the gateway asks a server on its own behalf, under ids of its own. */
export class Questions {
  readonly #server: string
  readonly #caller: Caller
  readonly #clock: Clock
  readonly #faults: Layer
  #count = 0

  /** `caller` hears what the server says in the course of an answer. */
  constructor(server: string, caller: Caller, clock: Clock, faults: Layer) {
    this.#faults = faults
    this.#server = server
    this.#caller = caller
    this.#clock = clock
  }

  /** Asks over one conversation. A method that the server does not know is an answer; its other errors are not. */
  over(link: Link, signal: Signal): Ask {
    return async (method, params) => {
      const { text, value } = await this.#exchange(link, method, params, signal)
      if (!isObject(value.error) || value.error.code === METHOD_NOT_FOUND) return { text, value }
      const words = printableWords(value.error.message, 200)
      throw gatewayError('bad_reply', `${method} failed: ${words}`, { sent: true })
    }
  }

  /** Whether anybody is there: any answer says yes, an error too. Rejects with a `GatewayError`. */
  async ping(link: Link, signal: Signal): Promise<void> {
    await this.#exchange(link, 'ping', {}, signal)
  }

  async #exchange(link: Link, method: string, params: Readonly<Record<string, unknown>>, signal: Signal) {
    const send = this.#faults((call) => link.exchange(call))
    const outcome = await send(this.#call(method, params, signal))
    if (outcome.kind !== 'answered') throw outcome.error
    return outcome.result
  }

  #call(method: string, params: Readonly<Record<string, unknown>>, signal: Signal): Call {
    const id = `breakwater-discovery-${++this.#count}`
    const caller = this.#caller
    return {
      server: this.#server,
      method,
      tool: undefined,
      id,
      message: { text: requestText(id, method, params), value: { jsonrpc: '2.0', id, method, params } },
      headers: undefined,
      inbound: {},
      tenant: '',
      countsAs: '',
      caller,
      channel: {
        open: () => undefined,
        pause: () => undefined,
        send: (message, answer) => void caller.receive(this.#server, message, answer),
      },
      signal,
      deadline: undefined,
      attempt: 1,
      replica: undefined,
      record: newRecord(this.#clock.now()),
    }
  }
}
