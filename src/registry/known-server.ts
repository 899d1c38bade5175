import type { ServerConfig } from '../config/schema/schema.ts'
import type { Message } from '../mesh/call.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import type { GatewayError } from '../mesh/errors.ts'
import { glob, type Glob } from '../mesh/match.ts'
import type { Effect, ToolDefinition } from '../mesh/policy.ts'
import { during } from '../mesh/work.ts'
import type { Era } from '../protocol/versions.ts'
import { annotatedEffect } from './entry-shape.ts'
import { type Catalog, changedKinds, emptyCatalog, type CatalogEntry } from './catalog.ts'
import { failureReasonOf } from './health/probe.ts'
import { type ListKind, listKinds } from '../protocol/lists.ts'
import { faultOfName, type Names } from './names.ts'

/** `starting` until the first round of discovery has succeeded or failed, however long a process takes to start. */
export type ServerState = 'starting' | 'up' | 'down'

/** An entry hidden from agents. */
interface Unlisted {
  readonly kind: ListKind
  /** As the server wrote the name: any characters, any length. */
  readonly name: string
  readonly why: string
  /** Where the entry is hidden: on the aggregated endpoint only, or on all endpoints. */
  readonly where: 'aggregate' | 'everywhere'
}

export interface KnownServerParts {
  readonly name: string
  readonly config: ServerConfig
  /** Maps names to the aggregated endpoint. */
  readonly names: Names
  readonly clock: Clock
  readonly onChanged: (server: KnownServer, changed: readonly ListKind[]) => void
  /** Called when the server has announced a changed list that is not fetched yet. */
  readonly onStale: (server: KnownServer) => void
  readonly onState: (server: KnownServer) => void
}

/** The gateway's knowledge of a server: state and catalog. */
export class KnownServer {
  readonly name: string
  readonly #parts: KnownServerParts
  #config: ServerConfig
  #allows: Glob
  /** Listed tools visible to agents, so calls need no glob matching. */
  #shownTools: ReadonlySet<string> = new Set()
  #state: ServerState = 'starting'
  #since: number
  #error: GatewayError | undefined
  #catalog: Catalog = emptyCatalog
  #listed = emptyCatalog.lists
  #unlisted: readonly Unlisted[] = []
  /** Tools by shortened name. */
  #shortened: ReadonlyMap<string, string> = new Map()
  /** Full exposed names by tool, a cache: digests of thousands of names take long. */
  #exposedNames: ReadonlyMap<string, string> = new Map()
  /** Tools whose shortened name another tool has: by accident, or because a server wants models to refuse its list. */
  #shadowed: ReadonlySet<string> = new Set()
  #tools: ReadonlyMap<string, KnownTool> = new Map()
  #initializeResult: Message | undefined
  /** The lists of the legacy era; undefined unless known to be separate lists. */
  #legacy:
    | {
        readonly catalog: Catalog
        /** The lists without entries that are hidden because of their names. */
        readonly listed: Catalog['lists']
        readonly initializeResult: Message | undefined
      }
    | undefined
  #legacyTools: ReadonlyMap<string, KnownTool> = new Map()
  /** Start of the grace period, on the monotonic clock. */
  #graceSince: Millis = 0
  #cancelGrace: Cancel | undefined
  #settle: () => void = () => undefined
  /** Resolves after the first round of discovery, or once the round takes too long to wait for. */
  readonly settled = new Promise<void>((resolve) => (this.#settle = resolve))

  constructor(parts: KnownServerParts) {
    this.name = parts.name
    this.#config = parts.config
    this.#allows = filter(parts.config.tools)
    this.#parts = parts
    this.#since = parts.clock.wall()
  }

  /** The server's entry in the config in force. */
  get config(): ServerConfig {
    return this.#config
  }

  /** Whether faults never hit the server. */
  get protected(): boolean {
    return this.#config.protected
  }

  /** Whether agents may see and call a tool. */
  allows(tool: string): boolean {
    return this.#shownTools.has(tool) || this.#allows(tool)
  }

  /** Whether the list for agents has a tool. */
  offers(tool: string): boolean {
    return this.#shownTools.has(tool)
  }

  get state(): ServerState {
    return this.#state
  }

  /** Start of the state, in milliseconds since the Unix epoch. */
  get since(): number {
    return this.#since
  }

  /** Why the server is down. */
  get error(): GatewayError | undefined {
    return this.#error
  }

  get catalog(): Catalog {
    return this.#catalog
  }

  /** The server's latest `initialize` result. */
  get initializeResult(): Message | undefined {
    return this.#initializeResult
  }

  initializeResultFor(era: Era): Message | undefined {
    return (era === 'legacy' ? this.#legacy?.initializeResult : undefined) ?? this.#initializeResult
  }

  /** Resolves when the lists for agents of an era are known, or failed. */
  settledFor(_era: Era): Promise<void> {
    return this.settled
  }

  /** Returns the entries of a list that agents of an era may see. */
  entries(kind: ListKind, era: Era = 'modern'): readonly CatalogEntry[] {
    const isKnown = this.#catalog.fetchedAt !== undefined
    const all = ((era === 'legacy' && isKnown ? this.#legacy?.listed : undefined) ?? this.#listed)[kind]
    return kind === 'tools' ? all.filter((entry) => this.allows(entry.key)) : all
  }

  get excluded(): readonly string[] {
    return this.#listed.tools.flatMap(({ key }) => (this.#allows(key) ? [] : [key]))
  }

  /** Entries hidden because of their names, on some or all endpoints. */
  get unlisted(): readonly Unlisted[] {
    return this.#unlisted
  }

  /** Returns the name of a tool on the aggregated endpoint. */
  exposedName(tool: string): string {
    return this.#exposedNames.get(tool) ?? this.#parts.names.exposeTool(this.name, tool)
  }

  /** Returns the tool of a shortened name, given without server prefix; undefined for other names. */
  toolShownAs(shown: string): string | undefined {
    return this.#shortened.get(shown)
  }

  /** Whether another tool of the server has the exposed name of this tool. */
  isShadowed(tool: string): boolean {
    return this.#shadowed.has(tool)
  }

  /** Returns the catalog's description of a tool; undefined when unknown in both eras. */
  facts(tool: string): ToolDefinition | undefined {
    return this.#known(tool)
  }

  /** Returns a tool's effect by the server's annotations; `unknown` unless the server is trusted. */
  effectOf(tool: string): Effect {
    return this.config.trusted ? (this.#known(tool)?.annotated ?? 'unknown') : 'unknown'
  }

  /** Ends the wait for the first round. */
  protected settle(): void {
    this.#settle()
  }

  /** Notes that the server answered with this catalog. */
  protected cameUp(catalog: Catalog, initializeResult: Message): void {
    this.endGrace()
    this.#initializeResult = initializeResult
    this.#error = undefined
    this.#enter('up')
    during('catalog', () => this.#replace(catalog))
  }

  /** Restores an earlier catalog, because faults had changed the later lists. */
  protected wasRestored(catalog: Catalog): void {
    during('catalog', () => this.#replace(catalog))
  }

  /** Takes the lists of the legacy era; undefined: the same as in the modern era. */
  protected offersLegacy(catalog: Catalog | undefined, initializeResult: Message | undefined): void {
    const before = this.#legacy?.catalog
    this.#legacy = catalog && { catalog, listed: withoutFaults(catalog), initializeResult }
    this.#legacyTools = catalog === undefined ? new Map() : knownTools(catalog, this.#legacyTools)
    this.#shortenNames()
    // The first legacy list changes nothing that an agent has seen.
    const changed = before === undefined ? [] : changedKinds(before, catalog ?? this.#catalog)
    if (changed.length > 0) this.tellChanged(changed)
  }

  /**
   * Notes that the server did not answer. Its lists are kept for the grace period; after a rate limit error, without a
   * time limit.
   */
  protected wentDown(error: GatewayError): void {
    this.#error = error
    this.#enter('down')
    // A rate-limited server is alive, and may have asked for a pause longer than any grace period.
    if (failureReasonOf(error) === 'rate_limited') return this.endGrace()
    if (this.#cancelGrace !== undefined) return
    this.#graceSince = this.#parts.clock.now()
    this.#waitForGrace()
  }

  protected follow(config: ServerConfig): void {
    this.#config = config
    this.#allows = filter(config.tools)
    this.#showTools()
    if (this.#cancelGrace === undefined) return
    this.#cancelGrace()
    this.#waitForGrace()
  }

  protected tellChanged(changed: readonly ListKind[]): void {
    this.#parts.onChanged(this, changed)
  }

  /** Ends the grace period; the catalog stays until the next change. */
  protected endGrace(): void {
    this.#cancelGrace?.()
    this.#cancelGrace = undefined
  }

  #known(tool: string): KnownTool | undefined {
    return this.#tools.get(tool) ?? this.#legacyTools.get(tool)
  }

  #showTools(): void {
    this.#shownTools = new Set(this.#listed.tools.map(({ key }) => key).filter(this.#allows))
  }

  #shortenNames(): void {
    const before = this.name.length + this.#parts.names.separator.length
    const shortened = new Map<string, string>()
    const exposedNames = new Map<string, string>()
    const shadowed = new Set<string>()
    for (const tool of new Set([...this.#tools.keys(), ...this.#legacyTools.keys()])) {
      const exposed = this.exposedName(tool)
      const shown = exposed.slice(before)
      if (shown === tool) continue
      exposedNames.set(tool, exposed)
      if (shortened.has(shown) || this.#known(shown) !== undefined) shadowed.add(tool)
      else shortened.set(shown, tool)
    }
    this.#shortened = shortened
    this.#exposedNames = exposedNames
    this.#shadowed = shadowed
  }

  #waitForGrace(): void {
    const { clock } = this.#parts
    const leftMs = Math.max(0, this.#graceSince + this.#config.grace - clock.now())
    this.#cancelGrace = clock.after(leftMs, () => this.#replace(emptyCatalog))
  }

  #unlistedAs(kind: ListKind, { key }: CatalogEntry): Unlisted[] {
    const fault = faultOfName(kind, key)
    if (fault !== undefined) return [{ kind, name: key, why: fault, where: 'everywhere' }]
    const isShadowed = kind === 'tools' && this.isShadowed(key)
    const why = isShadowed
      ? 'would be shortened to the name of another tool'
      : this.#parts.names.faultOf(kind, this.name, key)
    return why === undefined ? [] : [{ kind, name: key, why, where: 'aggregate' }]
  }

  #enter(state: ServerState): void {
    this.#settle()
    if (state === this.#state) return
    this.#state = state
    this.#since = this.#parts.clock.wall()
    this.#parts.onState(this)
  }

  #replace(catalog: Catalog): void {
    const changed = changedKinds(this.#catalog, catalog)
    this.#catalog = catalog
    this.#tools = knownTools(catalog, this.#tools)
    this.#shortenNames()
    this.#unlisted = listKinds.flatMap((kind) =>
      catalog.lists[kind].flatMap((entry) => this.#unlistedAs(kind, entry)),
    )
    this.#listed = this.#unlisted.length === 0 ? catalog.lists : withoutFaults(catalog)
    this.#showTools()
    if (changed.length > 0) this.tellChanged(changed)
  }
}

function filter({ include, exclude }: ServerConfig['tools']): Glob {
  const included = include.map(glob)
  const excluded = exclude.map(glob)
  return (tool) =>
    included.some((match) => match(tool)) &&
    !excluded.some((match) => match(tool)) &&
    faultOfName('tools', tool) === undefined
}

function withoutFaults({ lists }: Catalog): Catalog['lists'] {
  const kept = (kind: ListKind) => lists[kind].filter(({ key }) => faultOfName(kind, key) === undefined)
  return {
    tools: kept('tools'),
    prompts: kept('prompts'),
    resources: kept('resources'),
    resourceTemplates: kept('resourceTemplates'),
  }
}

/** A tool of the catalog, with the effect by its annotations. */
interface KnownTool extends ToolDefinition {
  readonly annotated: Effect
  readonly isAmbiguous: boolean
}

/** Returns the tools of a catalog by name. Unchanged tools are the same objects as in `before`. */
export function knownTools(
  { lists }: Catalog,
  before: ReadonlyMap<string, KnownTool>,
): ReadonlyMap<string, KnownTool> {
  return new Map(
    lists.tools.map((entry) => {
      const known = before.get(entry.key)
      const isSame = known?.fingerprint === entry.fingerprint && known.isAmbiguous === entry.isAmbiguous
      return [entry.key, isSame ? known : new Known(entry)]
    }),
  )
}

/** Parses schemas at the first use: most tools are never called. */
class Known implements KnownTool {
  readonly fingerprint: string
  readonly annotated: Effect
  readonly isAmbiguous: boolean
  readonly #entry: CatalogEntry
  #schemas: Pick<ToolDefinition, 'inputSchema' | 'outputSchema'> | undefined

  constructor(entry: CatalogEntry) {
    this.#entry = entry
    this.fingerprint = entry.fingerprint
    this.isAmbiguous = entry.isAmbiguous
    this.annotated = entry.isAmbiguous ? 'unknown' : annotatedEffect(entry.value.annotations)
  }

  get inputSchema(): unknown {
    return this.#read().inputSchema
  }

  get outputSchema(): unknown {
    return this.#read().outputSchema
  }

  #read(): Pick<ToolDefinition, 'inputSchema' | 'outputSchema'> {
    if (this.#schemas !== undefined) return this.#schemas
    const { inputSchema, outputSchema } = this.#entry.value
    return (this.#schemas = { inputSchema, outputSchema })
  }
}
