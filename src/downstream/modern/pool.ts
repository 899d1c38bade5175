import { createHash } from 'node:crypto'
import type { Answer, Caller, CallResult, Message } from '../../mesh/call.ts'
import { ignore } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { Coalescing } from '../../mesh/coalescing.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import { implementation } from '../../protocol/identity.ts'
import { errorText, isObject, METHOD_NOT_FOUND, resultText } from '../../protocol/jsonrpc.ts'
import { isListChange } from '../../protocol/lists.ts'
import { LATEST_LEGACY } from '../../protocol/versions.ts'
import { fanOut } from '../../upstreams/fan-out.ts'
import { Owners } from '../../upstreams/shared/owners.ts'
import { toldTask } from '../../protocol/mcp-task.ts'
import { initializeBytes } from '../initialize.ts'
import type { EvictingQuota, Holding, Quota } from '../limits/quotas.ts'

/** A callback for messages that a server sends outside of calls. */
export type Listener = (server: string, message: Message) => void

/** Uses of a caller, from the least to the most harm when the pool drops the caller. */
const Use = { None: 0, Listening: 1, Task: 2, Calls: 3 } as const
type Use = (typeof Use)[keyof typeof Use]

type Newcomer = Pick<PooledCaller, 'client' | 'principal' | 'tenant'>

/** The caller that servers see for all modern clients with equal capabilities and credentials. */
export class PooledCaller implements Caller {
  readonly id: string
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly headers: Readonly<Record<string, string>>
  readonly era = 'modern'
  readonly listeners = new Set<Listener>()
  /** The most verbose log level requested from each server, by server name. */
  readonly levels = new Map<string, string>()
  readonly client: string
  readonly principal: string
  readonly tenant: string
  readonly #hear: Listener
  readonly #tasks: Owners<PooledCaller>
  usedAt: Millis = -Infinity
  calls = 0
  readonly #changes: Coalescing<{ readonly server: string; readonly message: Message }>
  #minted = 0

  /**
   * The first request decides `client`, `principal` and `tenant`; the caller counts in their shares. All callers share
   * `tasks`.
   */
  constructor(
    clock: Clock,
    id: string,
    { client, principal, tenant }: Newcomer,
    clientInfo: unknown,
    capabilities: unknown,
    headers: Readonly<Record<string, string>>,
    hear: Listener,
    tasks: Owners<PooledCaller>,
  ) {
    this.id = id
    this.client = client
    this.principal = principal
    this.tenant = tenant
    this.#hear = hear
    this.#tasks = tasks
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

  /** The current use of the caller's upstream sessions; with several uses, the one whose loss harms most. */
  get use(): Use {
    if (this.calls > 0) return Use.Calls
    if (this.#tasks.isWorkingFor(this)) return Use.Task
    return this.listening ? Use.Listening : Use.None
  }

  /**
   * Handles the answer to a request, because the answer may tell of a task. `server` is undefined on the endpoint for
   * all servers.
   */
  answered(server: string | undefined, method: string, { result }: CallResult['value']): void {
    const told = isObject(result) ? toldTask(method, result) : undefined
    if (told === undefined) return
    const id = `${server ?? ''} ${told.id}`
    if (told.isNew) this.#tasks.add(id, this, told.isOpen, told.keepMs)
    else this.#tasks.over(id)
  }

  /** Returns an id unique among this caller's calls; ids of different clients may be equal. */
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
      void answer(errorText(null, METHOD_NOT_FOUND, 'this client takes requests only during a call')).catch(
        ignore,
      )
  }

  close(): void {
    this.#changes.end()
  }

  #tell(server: string, message: Message): void {
    fanOut(this.listeners, message, (listener, told) => listener(server, told))
  }
}

/** How long an unused caller is kept, in milliseconds. */
const IDLE_MS: Millis = 10 * 60_000

/** Precision of the order of use, in milliseconds. */
const ORDER_MS: Millis = 1_000

/** Shortest client description whose key is a hash, in characters. */
const LONG_KEY = 2_048

/**
 * The callers of modern clients. Clients with equal capabilities and credentials share a caller, so their calls need no
 * further handshake.
 */
export class CallerPool {
  readonly #clock: Clock
  readonly #drop: (caller: PooledCaller) => void
  readonly #hear: Listener
  readonly #callers = new Map<string, PooledCaller>()
  /** The quota for clients' descriptions that each caller holds. */
  readonly #kept = new Map<PooledCaller, Holding>()
  readonly #tasks: Owners<PooledCaller>
  readonly #quota: Quota
  readonly #initializeParamsQuota: EvictingQuota

  /**
   * `quota` limits the callers at once, in total and for each client address; `#replaceable` chooses the caller to drop
   * for a new caller. `hear` is called first for each message of a server outside of calls. `drop` must end a dropped
   * caller's upstream sessions and listeners.
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
    this.#tasks = new Owners(clock)
  }

  get size(): number {
    return this.#callers.size
  }

  /**
   * Returns the caller for a client, an existing or a new one; an error when all callers are in use. `headers` are sent
   * to servers, `principal` is a digest of the credentials, and `tenant` is the tenant that the caller counts for.
   */
  of(
    client: string,
    clientInfo: unknown,
    capabilities: unknown,
    headers: Readonly<Record<string, string>>,
    principal = '',
    tenant = '',
  ): PooledCaller | GatewayError {
    const said = JSON.stringify([clientInfo, capabilities, headers, principal])
    const key = said.length <= LONG_KEY ? said : createHash('sha256').update(said).digest('base64url')
    let caller = this.#callers.get(key)
    if (caller === undefined) {
      const bytes = initializeBytes([clientInfo, capabilities], headers)
      const full =
        this.#makeRoom({ client, principal, tenant }) ??
        this.#initializeParamsQuota.makeRoom(client, principal, bytes)
      if (full !== undefined) return full
      this.#quota.take(client)
      // Equal clients always get the same id, so a client that returns finds the state bound to its caller.
      const id = `modern:${createHash('sha256').update(said).digest('base64url')}`
      caller = new PooledCaller(
        this.#clock,
        id,
        { client, principal, tenant },
        clientInfo,
        capabilities,
        headers,
        this.#hear,
        this.#tasks,
      )
      this.#keep(key, caller, bytes)
    }
    const now = this.#clock.now()
    // Moves the caller to the end, because the map is in order of use, to `ORDER_MS`.
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

  #makeRoom(newcomer: Newcomer): GatewayError | undefined {
    const now = this.#clock.now()
    for (const [key, caller] of this.#callers) {
      if (now - caller.usedAt <= IDLE_MS) break
      if (caller.use === Use.None) this.#end(key, caller)
    }
    const limit = this.#quota.exceeds(newcomer.client)
    if (limit === undefined && !this.#quota.isKeptFrom(newcomer.client, this.#busyOf(newcomer)))
      return undefined
    const replaceable = this.#replaceable(limit ?? 'perClient', newcomer)
    if (replaceable === undefined) {
      const isKept = limit === undefined || (limit === 'perClient' && this.#hasIdle(newcomer))
      return isKept ? this.#quota.refuseTenant() : this.#quota.refuse(limit)
    }
    this.#end(...replaceable)
    return undefined
  }

  #hasIdle({ client }: Newcomer): boolean {
    return [...this.#callers.values()].some((caller) => caller.client === client && caller.use === Use.None)
  }

  /**
   * Returns the number of a tenant's callers in use. Idle callers do not count, because they make room for new callers.
   */
  #busyOf({ client, tenant }: Newcomer): number {
    let busy = 0
    for (const caller of this.#callers.values())
      if (caller.client === client && caller.tenant === tenant && caller.use !== Use.None) busy++
    return busy
  }

  /**
   * Returns the caller to drop for a new caller; undefined when no caller may be dropped. Chooses an idle caller first,
   * of any client, because its clients lose only a handshake. Exception: credentials that hold all but the last eighth
   * of an address's callers do not replace idle callers of other credentials there.
   *
   * Without an idle caller, chooses a caller that only listens, else a caller with an open task. Its client must still
   * have more callers afterwards than the new caller's client. So no client blocks others with many callers, and no
   * client loses a caller in use to its own next caller. Never ends calls in progress. Among several callers, chooses
   * the least harm, then the client with the most callers, then the longest unused caller.
   */
  #replaceable(limit: 'max' | 'perClient', newcomer: Newcomer) {
    const counts = new Map<string, number>()
    for (const caller of this.#callers.values())
      counts.set(shareOf(caller), (counts.get(shareOf(caller)) ?? 0) + 1)
    const own = { all: this.#quota.of(newcomer.client), principal: counts.get(shareOf(newcomer)) ?? 0 }
    let found: [string, PooledCaller] | undefined
    let least: readonly [use: Use, most: number, mostOfPrincipal: number] = [Use.Calls, 0, 0]
    for (const [key, caller] of this.#callers) {
      const isNeighbour = caller.client === newcomer.client
      const use = caller.use
      if (use > least[0] || use === Use.Calls || (limit === 'perClient' && !isNeighbour)) continue
      const all = this.#quota.of(caller.client)
      const ofPrincipal = counts.get(shareOf(caller)) ?? 0
      const more = isNeighbour ? ofPrincipal - own.principal : all - own.all
      const isOwn = isNeighbour && caller.principal === newcomer.principal
      const isKept = isNeighbour && !isOwn && more < 1 && this.#quota.isNearlyAll(own.principal)
      if (use === Use.None ? isKept : more < 2) continue
      const isLess = use < least[0] || all > least[1] || (all === least[1] && ofPrincipal > least[2])
      if (isLess)
        [found, least] = [
          [key, caller],
          [use, all, ofPrincipal],
        ]
    }
    return found
  }

  #keep(key: string, caller: PooledCaller, bytes: number): void {
    const clock = this.#clock
    const holding: Holding = {
      client: caller.client,
      principal: caller.principal,
      get idleMs() {
        return caller.use === Use.None ? clock.now() - caller.usedAt : 0
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
    this.#tasks.left(caller)
    caller.close()
    this.#drop(caller)
  }
}

/** Returns the key of a caller's address and principal, because several principals may use one address. */
const shareOf = ({ client, principal }: Pick<PooledCaller, 'client' | 'principal'>) =>
  `${client} ${principal}`
