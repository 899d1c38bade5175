import type { Answer, Call, Caller, Message, Outcome } from '../../mesh/call.ts'

/** Takes one message of a server; `answer` is given when it is a request. */
export type Deliver = (message: Message, answer?: Answer) => Promise<void> | undefined

/** A call that the server has not answered yet. */
export interface Entry {
  /** Our own id of the request. */
  readonly id: number
  readonly call: Call
  readonly resolve: (outcome: Outcome) => void
  readonly onAbort: () => void
  /** Whether the server may have got it. */
  written: boolean
  /** Ends the wait for a slow channel. */
  release: (() => void) | undefined
}

/** Requests in whose course a server has nothing to ask or to tell, so that nothing is put down to them. */
const quiet = new Set([
  'initialize',
  'server/discover',
  'subscriptions/listen',
  'ping',
  'logging/setLevel',
  'resources/subscribe',
  'resources/unsubscribe',
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
])

/** The calls of one conversation that wait for their answers, oldest first. */
export class InFlight {
  readonly #server: string
  readonly #entries = new Map<number, Entry>()
  #lastId = 0

  constructor(server: string) {
    this.#server = server
  }

  get size(): number {
    return this.#entries.size
  }

  /** Enters a call under an id of our own. `abort` is told when its signal aborts before it is settled. */
  add(call: Call, resolve: (outcome: Outcome) => void, abort: (entry: Entry) => void): Entry {
    const id = ++this.#lastId
    const onAbort = () => abort(entry)
    const entry: Entry = { id, call, resolve, onAbort, written: false, release: undefined }
    this.#entries.set(id, entry)
    call.signal.addEventListener('abort', onAbort)
    return entry
  }

  /** The call behind an id or progress token, whatever the server sent as such. */
  get(id: unknown): Entry | undefined {
    return typeof id === 'number' ? this.#entries.get(id) : undefined
  }

  settle(entry: Entry, outcome: Outcome): void {
    if (!this.#entries.delete(entry.id)) return
    entry.call.signal.removeEventListener('abort', entry.onAbort)
    entry.release?.()
    entry.resolve(outcome)
  }

  /** All calls, or those of one caller. */
  of(caller?: Caller): Entry[] {
    const all = [...this.#entries.values()]
    return caller === undefined ? all : all.filter(({ call }) => call.caller === caller)
  }

  /**
   * The one caller with calls in flight; undefined when there is none, or more than one. Two calls of the
   * modern era count as two callers': without sessions, nobody can tell whether they are one client's.
   */
  onlyCaller(): Caller | undefined {
    let only: Caller | undefined
    for (const { call } of this.#entries.values()) {
      if (quiet.has(call.method) || (call.caller === only && !only.takesInputRequired)) continue
      if (only !== undefined) return undefined
      only = call.caller
    }
    return only
  }

  /** The way to a caller: through its latest call while that is in flight, and past all calls otherwise. */
  wayTo(caller: Caller): Deliver {
    const latest = this.#latest(caller)
    return (message, answer) => {
      if (latest !== undefined && this.#entries.has(latest.id)) return this.through(latest, message, answer)
      caller.receive(this.#server, message, answer)
      return undefined
    }
  }

  /** Sends through a call's channel. Waits for a slow one, but for no longer than the call is in flight. */
  through(entry: Entry, message: Message, answer?: Answer): Promise<void> | undefined {
    const sent = entry.call.channel.send(message, answer)
    if (sent === undefined) return undefined
    return new Promise((resolve) => {
      entry.release = resolve
      sent.then(resolve, resolve)
    })
  }

  #latest(caller: Caller): Entry | undefined {
    let latest: Entry | undefined
    for (const entry of this.#entries.values()) {
      if (entry.call.caller === caller && !quiet.has(entry.call.method)) latest = entry
    }
    return latest
  }
}
