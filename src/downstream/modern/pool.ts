import { createHash } from 'node:crypto'
import type { Answer, Caller, Message } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { Coalescing } from '../../mesh/coalescing.ts'
import { countCopy } from '../../mesh/turns.ts'
import { during } from '../../mesh/work.ts'
import { implementation } from '../../identity.ts'
import { errorText, METHOD_NOT_FOUND, resultText } from '../../protocol/jsonrpc.ts'
import { listChanges } from '../../protocol/list-changes.ts'
import { LATEST_LEGACY } from '../../protocol/versions.ts'

/** Takes what a server sends outside of calls. */
export type Listener = (server: string, message: Message) => void

/** On behalf of whom servers are called for all modern clients that are alike. */
export class PooledCaller implements Caller {
  readonly id: string
  readonly hello: Readonly<Record<string, unknown>>
  readonly headers: Readonly<Record<string, string>>
  readonly takesInputRequired = true
  readonly listeners = new Set<Listener>()
  /** The most verbose log level that each server was asked for, by the server's name. */
  readonly levels = new Map<string, string>()
  usedAt: Millis = -Infinity
  /** How many calls are under way. */
  calls = 0
  readonly #changes: Coalescing<{ readonly server: string; readonly message: Message }>
  #minted = 0

  constructor(
    clock: Clock,
    id: string,
    clientInfo: unknown,
    capabilities: unknown,
    headers: Readonly<Record<string, string>>,
  ) {
    this.id = id
    this.headers = headers
    this.#changes = new Coalescing(clock, ({ server, message }) => this.#tell(server, message))
    this.hello = { protocolVersion: LATEST_LEGACY, capabilities, clientInfo: clientInfo ?? implementation }
  }

  get listening(): boolean {
    return this.listeners.size > 0
  }

  /** Whether somebody would miss its conversations right now. */
  get busy(): boolean {
    return this.calls > 0 || this.listening
  }

  /** An id that no other call of this caller has: its clients all count for themselves. */
  mintId(): string {
    return `breakwater-${++this.#minted}`
  }

  receive(server: string, message: Message, answer?: Answer): void {
    const method = message.value.method as string
    if (answer === undefined) {
      if (listChanges.has(method)) this.#changes.tell(`${server} ${method}`, { server, message })
      else this.#tell(server, message)
    } else if (method === 'ping') void answer(resultText(0, '{}')).catch(ignore)
    else
      void answer(errorText(null, METHOD_NOT_FOUND, 'nobody waits for requests outside of a call')).catch(
        ignore,
      )
  }

  /** Nobody listens any more. */
  close(): void {
    this.#changes.end()
  }

  #tell(server: string, message: Message): void {
    during('fan_out', () => {
      for (const listener of this.listeners) {
        listener(server, message)
        countCopy()
      }
    })
  }
}

/** Most kinds of clients that are told apart at once; the one unused for longest makes room. */
const MAX_CALLERS = 256

/** How long a caller that nobody uses is kept, in milliseconds. */
const IDLE_MS: Millis = 10 * 60_000

/** Uses within this time count as one, in milliseconds. */
const ORDER_MS: Millis = 1_000

/** What clients say of themselves is hashed from this length on, in characters. */
const LONG_KEY = 2_048

/** One caller for all clients with the same capabilities and credentials: the next call costs no handshake. */
export class CallerPool {
  readonly #clock: Clock
  readonly #drop: (caller: PooledCaller) => void
  readonly #callers = new Map<string, PooledCaller>()
  #count = 0

  /** `drop` ends a caller's conversations. */
  constructor(clock: Clock, drop: (caller: PooledCaller) => void) {
    this.#clock = clock
    this.#drop = drop
  }

  get size(): number {
    return this.#callers.size
  }

  /** The caller for clients like this one; `headers` are those that servers will see. */
  of(clientInfo: unknown, capabilities: unknown, headers: Readonly<Record<string, string>>): PooledCaller {
    const said = JSON.stringify([clientInfo, capabilities, headers])
    const key = said.length <= LONG_KEY ? said : createHash('sha256').update(said).digest('base64url')
    let caller = this.#callers.get(key)
    if (caller === undefined) {
      this.#makeRoom()
      caller = new PooledCaller(this.#clock, `modern:${++this.#count}`, clientInfo, capabilities, headers)
    }
    const now = this.#clock.now()
    // Moved to the end: the map's order is that of use, as precisely as it needs to be.
    if (now - caller.usedAt >= ORDER_MS) {
      this.#callers.delete(key)
      this.#callers.set(key, caller)
      caller.usedAt = now
    }
    return caller
  }

  closeAll(): void {
    for (const [key, caller] of this.#callers) this.#end(key, caller)
  }

  #makeRoom(): void {
    const now = this.#clock.now()
    for (const [key, caller] of this.#callers) {
      const isFull = this.#callers.size >= MAX_CALLERS
      if (!isFull && now - caller.usedAt <= IDLE_MS) return
      if (!caller.busy) this.#end(key, caller)
    }
    const [oldest] = this.#callers
    if (oldest !== undefined && this.#callers.size >= MAX_CALLERS) this.#end(...oldest)
  }

  #end(key: string, caller: PooledCaller): void {
    this.#callers.delete(key)
    caller.close()
    this.#drop(caller)
  }
}

/** The server that asked is gone. */
function ignore(): void {}
