import { newRecord, type Message } from '../../mesh/call.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Live } from '../../mesh/live.ts'
import { ownTurn } from '../../mesh/turns.ts'
import { during, LARGE_TEXT } from '../../mesh/work.ts'
import { askedLimitMs } from '../../policies/deadline/asked.ts'
import { isObject, paramsOf, requestText } from '../../protocol/jsonrpc.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import { withEntry } from '../../protocol/with-entry.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { Inquiry } from '../front.ts'
import type { Guards } from '../guards.ts'
import type { Response } from '../respond.ts'
import type { Tenancy } from '../tenancy.ts'
import type { Visit } from '../visit.ts'
import { mirroredHeaders } from './envelope.ts'
import type { Exchange } from './exchange.ts'
import { isMoreVerbose } from './levels.ts'
import { isList, ListCache, LONGEST_KEY } from './list-cache.ts'
import type { PooledCaller } from './pool.ts'

/** Takes the requests of modern clients to their servers, and the answers back to the exchanges that wait for them. */
export class Relay {
  readonly #live: Live<GatewayGeneration>
  readonly #clock: Clock
  readonly #lists: ListCache
  readonly #guards: Pick<Guards, 'defect'>

  constructor(live: Live<GatewayGeneration>, clock: Clock, guards: Pick<Guards, 'defect'>) {
    this.#guards = guards
    this.#live = live
    this.#clock = clock
    this.#lists = new ListCache(clock)
  }

  /** Sends the request on under ids of ours: the conversation with the server is not this client's alone. */
  run({ front, headers }: Visit, exchange: Exchange, tenancy: Tenancy, message: Message): Promise<void> {
    const { caller, signal } = exchange
    const { logLevel } = exchange.envelope
    const id = caller.mintId()
    const record = newRecord(this.#clock.now())
    const mirrored = mirroredHeaders(headers)
    const own = renamed(message, id)
    const lease = this.#live.enter()
    caller.calls++
    const plain: Inquiry = {
      id,
      message: own,
      headers,
      caller,
      tenancy,
      channelFor: () => exchange.channel(record, this.#clock),
      signal,
      record,
    }
    const inquiry = mirrored === undefined ? plain : { ...plain, mirrored }
    const done = (response: Response) => {
      caller.calls--
      lease.release()
      if (response.text.length < LARGE_TEXT) return void exchange.end(response, record)
      return ownTurn(exchange.client).then(() => during('reply', () => exchange.end(response, record)))
    }
    // A defect of ours has an answer, too, also where the call is parked.
    const broke = (cause: unknown) => done({ text: this.#guards.defect(id, cause), status: 200 })
    try {
      const answer =
        logLevel === undefined
          ? this.#ask(lease.generation, front, inquiry)
          : this.#raiseLevel(inquiry, front, logLevel).then(() => this.#ask(lease.generation, front, inquiry))
      return answer.then(done, broke)
    } catch (cause) {
      return broke(cause) ?? Promise.resolve()
    }
  }

  /** Lists are asked for once for all who may share them, so none of these can cancel it for the others. */
  #ask(generation: GatewayGeneration, front: Visit['front'], inquiry: Inquiry): Promise<Response> {
    const { value } = inquiry.message
    const method = value.method as string
    if (!isList(method)) return front.request(generation, inquiry)
    const key = JSON.stringify([generation.hash, front.server, method, paramsOf(value).cursor])
    if (key.length > LONGEST_KEY) return front.request(generation, inquiry)
    const hurries = askedLimitMs({ inbound: inquiry.headers, message: inquiry.message }) !== undefined
    const asked = hurries ? inquiry : { ...inquiry, signal: new Cancellation() }
    const list = { server: front.server, key }
    return this.#lists.get(list, inquiry.caller.id, () => front.request(generation, asked), hurries)
  }

  /** What a server offers has changed, or for undefined that of all: no list that was kept of it is given out any more. */
  forgetLists(server: string | undefined): void {
    this.#lists.forget(server)
  }

  /** A legacy server has one log level per conversation: the most verbose that anybody asked for. */
  async #raiseLevel(inquiry: Inquiry, front: Visit['front'], level: string): Promise<void> {
    const caller = inquiry.caller as PooledCaller
    const key = front.server ?? ''
    if (!isMoreVerbose(level, caller.levels.get(key))) return
    caller.levels.set(key, level)
    const id = caller.mintId()
    const value = { jsonrpc: '2.0', id, method: 'logging/setLevel', params: { level } }
    const message = { text: requestText(id, value.method, value.params), value }
    await front.request(this.#live.current, { ...inquiry, id, message, record: newRecord(this.#clock.now()) })
  }
}

/** The request under another id, which is its progress token too. */
function renamed({ text, value }: Message, id: string): Message {
  const params = paramsOf(value)
  const meta = params._meta
  const named = replaceAt(text, ['id'], id)
  if (!isObject(meta) || meta.progressToken === undefined)
    return { text: named, value: withEntry(value, 'id', id) }
  return {
    text: replaceAt(named, ['params', '_meta', 'progressToken'], id),
    value: { ...value, id, params: { ...params, _meta: { ...meta, progressToken: id } } },
  }
}
