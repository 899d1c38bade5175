import { createHash } from 'node:crypto'
import type { Answer, Caller, Message } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { Coalescing } from '../../mesh/coalescing.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import { implementation } from '../../protocol/identity.ts'
import { errorText, METHOD_NOT_FOUND, resultText } from '../../protocol/jsonrpc.ts'
import { isListChange } from '../../protocol/list-changes.ts'
import { LATEST_LEGACY } from '../../protocol/versions.ts'
import { fanOut } from '../../upstreams/fan-out.ts'
import { initializeBytes } from '../initialize.ts'
import type { EvictingQuota, Holding, Quota } from '../quotas.ts'

/** Takes what a server sends outside of calls. */
export type Listener = (server: string, message: Message) => void

/** On behalf of whom servers are called for all modern clients that are alike. */
export class PooledCaller implements Caller {
  readonly id: string
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly headers: Readonly<Record<string, string>>
  readonly era = 'modern'
  readonly listeners = new Set<Listener>()
  /** The most verbose log level that each server was asked for, by the server's name. */
  readonly levels = new Map<string, string>()
  readonly client: string
  readonly #hear: Listener
  usedAt: Millis = -Infinity
  /** How many calls are under way. */
  calls = 0
  readonly #changes: Coalescing<{ readonly server: string; readonly message: Message }>
  #minted = 0

  /** `client` is that which came first: its share is used. */
  constructor(
    clock: Clock,
    id: string,
    client: string,
    clientInfo: unknown,
    capabilities: unknown,
    headers: Readonly<Record<string, string>>,
    hear: Listener,
  ) {
    this.id = id
    this.client = client
    this.#hear = hear
    this.headers = headers
    this.#changes = new Coalescing(clock, ({ server, message }) => this.#tell(server, message))
    this.initializeParams = {
      protocolVersion: LATEST_LEGACY,
      capabilities,
      clientInfo: clientInfo ?? implementation,
    }
  }

  get listening(): boolean {
    return this.listeners.size > 0
  }

  /** Whether somebody would miss its upstream sessions right now. */
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
      this.#hear(server, message)
      if (isListChange(message)) this.#changes.tell(`${server} ${method}`, { server, message })
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
    fanOut(this.listeners, message, (listener, told) => listener(server, told))
  }
}

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
  readonly #hear: Listener
  readonly #callers = new Map<string, PooledCaller>()
  /** What each of them keeps of its clients' words. */
  readonly #kept = new Map<PooledCaller, Holding>()
  readonly #quota: Quota
  readonly #initializeParamsQuota: EvictingQuota

  /**
   * The quota says how many kinds of clients are told apart at once, and how many of them one client may be; of those that
   * nobody uses right now, the one unused for longest makes room. `drop` ends a caller's upstream sessions; `hear` gets what
   * servers send outside of calls before anybody else does.
   */
  constructor(
    clock: Clock,
    quota: Quota,
    initializeParamsQuota: EvictingQuota,
    drop: (caller: PooledCaller) => void,
    hear: Listener,
  ) {
    this.#clock = clock
    this.#quota = quota
    this.#initializeParamsQuota = initializeParamsQuota
    this.#drop = drop
    this.#hear = hear
  }

  get size(): number {
    return this.#callers.size
  }

  /**
   * The caller for clients like this one; `headers` are those that servers will see, `principal` is a digest of what says
   * for whom it comes. So whatever is bound to a caller is bound to these. An error when all callers are in use.
   */
  of(
    client: string,
    clientInfo: unknown,
    capabilities: unknown,
    headers: Readonly<Record<string, string>>,
    principal = '',
  ): PooledCaller | GatewayError {
    const said = JSON.stringify([clientInfo, capabilities, headers, principal])
    const key = said.length <= LONG_KEY ? said : createHash('sha256').update(said).digest('base64url')
    let caller = this.#callers.get(key)
    if (caller === undefined) {
      const bytes = initializeBytes([clientInfo, capabilities], headers)
      const full = this.#makeRoom(client) ?? this.#initializeParamsQuota.makeRoom(client, principal, bytes)
      if (full !== undefined) return full
      this.#quota.take(client)
      // The same when clients like this one come again: what is bound to it is theirs then as well.
      const id = `modern:${createHash('sha256').update(said).digest('base64url')}`
      caller = new PooledCaller(this.#clock, id, client, clientInfo, capabilities, headers, this.#hear)
      this.#keep(key, caller, principal, bytes)
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

  /** One that is in use never makes room: with it would end calls and streams of clients that have done nothing. */
  #makeRoom(client: string): GatewayError | undefined {
    const now = this.#clock.now()
    for (const [key, caller] of this.#callers) {
      if (now - caller.usedAt <= IDLE_MS) break
      if (!caller.busy) this.#end(key, caller)
    }
    const limit = this.#quota.exceeds(client)
    if (limit === undefined) return undefined
    for (const [key, caller] of this.#callers) {
      if (caller.busy || (limit === 'perClient' && caller.client !== client)) continue
      this.#end(key, caller)
      return undefined
    }
    return this.#quota.refuse(limit)
  }

  #keep(key: string, caller: PooledCaller, principal: string, bytes: number): void {
    const clock = this.#clock
    const holding: Holding = {
      client: caller.client,
      principal,
      get idleMs() {
        return caller.busy ? 0 : clock.now() - caller.usedAt
      },
      end: () => this.#end(key, caller),
    }
    this.#kept.set(caller, holding)
    this.#initializeParamsQuota.hold(holding, bytes)
  }

  #end(key: string, caller: PooledCaller): void {
    this.#callers.delete(key)
    this.#quota.release(caller.client)
    const kept = this.#kept.get(caller)
    this.#kept.delete(caller)
    if (kept !== undefined) this.#initializeParamsQuota.drop(kept)
    caller.close()
    this.#drop(caller)
  }
}

/** The server that asked is gone. */
function ignore(): void {}
