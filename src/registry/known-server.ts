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

/** `starting` until the first round of discovery has ended, one way or the other, however long a process takes to come up. */
export type ServerState = 'starting' | 'up' | 'down'

/** Something that a server offers and agents are not shown. */
interface Unlisted {
  readonly kind: ListKind
  /** As the server wrote it: any characters, any length. */
  readonly name: string
  readonly why: string
  /** Where it is not shown: nowhere else than on the aggregated endpoint, or on no endpoint at all. */
  readonly where: 'aggregate' | 'everywhere'
}

export interface KnownServerParts {
  readonly name: string
  readonly config: ServerConfig
  /** The names of its tools and other entries on the aggregated endpoint. */
  readonly names: Names
  readonly clock: Clock
  readonly onChanged: (server: KnownServer, changed: readonly ListKind[]) => void
  /** It says that a list has changed, and nobody knows yet what it is now. */
  readonly onStale: (server: KnownServer) => void
  readonly onState: (server: KnownServer) => void
}

/** The gateway's knowledge of a server: whether the server is up, and what it offers. */
export class KnownServer {
  readonly name: string
  readonly #parts: KnownServerParts
  #config: ServerConfig
  #allows: Glob
  /** The tools of its list that agents may see: those that are called need not be matched again. */
  #shownTools: ReadonlySet<string> = new Set()
  #state: ServerState = 'starting'
  #since: number
  #error: GatewayError | undefined
  #catalog: Catalog = emptyCatalog
  #listed = emptyCatalog.lists
  #unlisted: readonly Unlisted[] = []
  /** Tools by the names under which they are shown where models would not take their own. */
  #shortened: ReadonlyMap<string, string> = new Map()
  /** The other way round, in full: digests of thousands of names take their time. */
  #exposedNames: ReadonlyMap<string, string> = new Map()
  /** Tools whose shortened name another one has: by accident, or because the server wants a list that no model takes. */
  #shadowed: ReadonlySet<string> = new Set()
  #tools: ReadonlyMap<string, KnownTool> = new Map()
  #initializeResult: Message | undefined
  /** The server's offers in the legacy era; undefined unless they are known to be something of their own. */
  #legacy:
    | {
        readonly catalog: Catalog
        /** Without what is not shown to agents because of its name. */
        readonly listed: Catalog['lists']
        readonly initializeResult: Message | undefined
      }
    | undefined
  #legacyTools: ReadonlyMap<string, KnownTool> = new Map()
  /** When the time of grace began, on the monotonic clock. */
  #graceSince: Millis = 0
  #cancelGrace: Cancel | undefined
  #settle: () => void = () => undefined
  /** Resolves when the first round of discovery has ended, or takes so long that nobody should wait for it. */
  readonly settled = new Promise<void>((resolve) => (this.#settle = resolve))

  constructor(parts: KnownServerParts) {
    this.name = parts.name
    this.#config = parts.config
    this.#allows = filter(parts.config.tools)
    this.#parts = parts
    this.#since = parts.clock.wall()
  }

  /** Its entry in the config that is in force. */
  get config(): ServerConfig {
    return this.#config
  }

  /** Whether faults leave it alone, whatever they aim at. */
  get protected(): boolean {
    return this.#config.protected
  }

  /** Whether agents may see and call a tool. */
  allows(tool: string): boolean {
    return this.#shownTools.has(tool) || this.#allows(tool)
  }

  /** Whether agents are shown a tool. */
  offers(tool: string): boolean {
    return this.#shownTools.has(tool)
  }

  get state(): ServerState {
    return this.#state
  }

  /** When the state began, in milliseconds since the Unix epoch. */
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

  /** The server's `initialize` result, as the gateway got it last. */
  get initializeResult(): Message | undefined {
    return this.#initializeResult
  }

  /** The `initialize` result that tells what agents of an era are offered. */
  initializeResultFor(era: Era): Message | undefined {
    return (era === 'legacy' ? this.#legacy?.initializeResult : undefined) ?? this.#initializeResult
  }

  /** Resolves when it is known what agents of an era are offered, or why it is not. */
  settledFor(_era: Era): Promise<void> {
    return this.settled
  }

  /** Returns the entries of a list that agents of an era may see. */
  entries(kind: ListKind, era: Era = 'modern'): readonly CatalogEntry[] {
    const isKnown = this.#catalog.fetchedAt !== undefined
    const all = ((era === 'legacy' && isKnown ? this.#legacy?.listed : undefined) ?? this.#listed)[kind]
    return kind === 'tools' ? all.filter((entry) => this.allows(entry.key)) : all
  }

  /** The tools that its config leaves out. */
  get excluded(): readonly string[] {
    return this.#listed.tools.flatMap(({ key }) => (this.#allows(key) ? [] : [key]))
  }

  /** The entries that agents do not see in any list, or not on every endpoint, because of their names. */
  get unlisted(): readonly Unlisted[] {
    return this.#unlisted
  }

  /** The name of a tool on the endpoint of all servers. */
  exposedName(tool: string): string {
    return this.#exposedNames.get(tool) ?? this.#parts.names.exposeTool(this.name, tool)
  }

  /** The tool that is shown under such a name, without its server's before it; undefined unless that is a shortened one. */
  toolShownAs(shown: string): string | undefined {
    return this.#shortened.get(shown)
  }

  /** Whether another tool of it has the name that a tool would be shown under on the endpoint of all servers. */
  isShadowed(tool: string): boolean {
    return this.#shadowed.has(tool)
  }

  /** Returns the catalog's description of a tool; undefined when the catalogs of both eras have none. */
  facts(tool: string): ToolDefinition | undefined {
    return this.#known(tool)
  }

  /** Returns a tool's effect by the server's own word, which is believed only if the server is trusted. */
  effectOf(tool: string): Effect {
    return this.config.trusted ? (this.#known(tool)?.annotated ?? 'unknown') : 'unknown'
  }

  /** Nobody is to wait any longer for the end of the first round. */
  protected settle(): void {
    this.#settle()
  }

  /** It answered, with this catalog. */
  protected cameUp(catalog: Catalog, initializeResult: Message): void {
    this.endGrace()
    this.#initializeResult = initializeResult
    this.#error = undefined
    this.#enter('up')
    during('catalog', () => this.#replace(catalog))
  }

  /** Puts back an earlier catalog: faults had made the lists that were known since. */
  protected wasRestored(catalog: Catalog): void {
    during('catalog', () => this.#replace(catalog))
  }

  /** Takes the server's offers in the legacy era; undefined: the same offers as in the modern era. */
  protected offersLegacy(catalog: Catalog | undefined, initializeResult: Message | undefined): void {
    const before = this.#legacy?.catalog
    this.#legacy = catalog && { catalog, listed: withoutFaults(catalog), initializeResult }
    this.#legacyTools = catalog === undefined ? new Map() : knownTools(catalog, this.#legacyTools)
    this.#shortenNames()
    // Nobody was shown another one before the first.
    const changed = before === undefined ? [] : changedKinds(before, catalog ?? this.#catalog)
    if (changed.length > 0) this.tellChanged(changed)
  }

  /** The server did not answer. Its offers stay known for the time of grace; for longer if all it says is that we ask too often. */
  protected wentDown(error: GatewayError): void {
    this.#error = error
    this.#enter('down')
    // It is there, and may have asked for a pause that is longer than any grace.
    if (failureReasonOf(error) === 'rate_limited') return this.endGrace()
    if (this.#cancelGrace !== undefined) return
    this.#graceSince = this.#parts.clock.now()
    this.#waitForGrace()
  }

  /** Goes by another entry from now on. */
  protected follow(config: ServerConfig): void {
    this.#config = config
    this.#allows = filter(config.tools)
    this.#showTools()
    if (this.#cancelGrace === undefined) return
    this.#cancelGrace()
    this.#waitForGrace()
  }

  /** Tells that lists have changed. */
  protected tellChanged(changed: readonly ListKind[]): void {
    this.#parts.onChanged(this, changed)
  }

  /** Ends the time of grace: the known catalog stays for as long as nobody says otherwise. */
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
    const why = isShadowed ? 'would be that of another tool' : this.#parts.names.faultOf(kind, this.name, key)
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

/** A tool of the catalog, with its server's own word on its effect. */
interface KnownTool extends ToolDefinition {
  readonly annotated: Effect
  readonly isAmbiguous: boolean
}

/** The tools of a catalog by name; what has not changed since `before` is the same object. */
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

/** Schemas are read when the first call asks for them: of most tools nobody ever does. */
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
