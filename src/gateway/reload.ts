import { isDeepStrictEqual } from 'node:util'
import { bootChanges, type ReloadReport } from '../config/boot-keys.ts'
import { noteHash } from '../config/hash.ts'
import { type ConfigIssue, formatIssue } from '../config/issues/issues.ts'
import type { FilesRead, Loaded } from '../config/load.ts'
import type { Config, ServerConfig } from '../config/schema/schema.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import type { StateKey } from '../mesh/policy.ts'
import { mayApply } from '../mesh/settings.ts'
import type { States } from '../mesh/state.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { listKinds } from '../protocol/lists.ts'
import { lookForIdleGlobs } from '../registry/log-lines.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { Agents } from './agents.ts'
import { compileGeneration, compileInTurns, type GenerationParts } from './generation.ts'

export interface ReloaderParts {
  /** Reads the files. Unchanged server entries must be the same objects as in `before`, so checks can skip them. */
  readonly load: (before: Config) => Promise<Loaded>
  /** Compiles the config and puts it into force. Throws when the config does not compile. */
  readonly apply: (config: Config, renew: ReadonlySet<string>) => void
  /**
   * Compiles the config over several turns of the event loop. Rejects when the config does not compile. The resulting
   * function puts the config into force. The function returns false, and does nothing, when another config came into
   * force meanwhile: then compile again.
   */
  readonly prepare: (config: Config) => Promise<() => boolean>
  /** Returns the hash of the effective config, including dynamic servers and keys fixed at boot. */
  readonly inForce: () => string
  /** Returns the reason when the plan's faults are enabled but not armed; undefined when armed, or without faults. */
  readonly unarmed: () => string | undefined
  /** Returns the dynamic servers. */
  readonly added: () => Readonly<Record<string, ServerConfig>>
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
}

const STOPPING = 'the gateway is being stopped'

/** Puts configs into force, one after the other. A bad config changes nothing. */
export class Reloader {
  readonly #parts: ReloaderParts
  readonly #boot: Config
  #file: Config
  #watched: FilesRead
  #last: Promise<unknown> = Promise.resolve()
  /** The queued reload; undefined when none waits. */
  #next: Promise<ReloadReport> | undefined
  #isClosed = false

  /** `first`: the config already in force, read from `files`. */
  constructor(first: Config, files: FilesRead, parts: ReloaderParts) {
    this.#parts = parts
    this.#boot = first
    this.#file = first
    this.#watched = files
    this.#succeeded()
  }

  /** The files to watch: the files of the last read, even if their config was refused. */
  get files(): FilesRead {
    return this.#watched
  }

  /**
   * Reloads the config from its files, after the reload in progress. A caller joins a reload that is already queued.
   * Never rejects.
   */
  reload(trigger: string): Promise<ReloadReport> {
    this.#next ??= this.#last.then(() => {
      this.#next = undefined
      return this.#reload(trigger)
    })
    this.#last = this.#next
    return this.#next
  }

  /** Puts the last config into force with the current dynamic servers; `renew` names servers to create anew. */
  refresh(renew: ReadonlySet<string> = new Set()): void {
    if (this.#isClosed) return
    this.#parts.apply(withServers(this.#file, this.#parts.added()), renew)
    this.#succeeded()
  }

  /** Refuses further configs, and also a config in progress: servers started after the shutdown would never end. */
  close(): void {
    this.#isClosed = true
  }

  async #reload(trigger: string): Promise<ReloadReport> {
    const { log, metrics } = this.#parts
    const before = this.#file
    const loaded = await this.#load(before)
    if (typeof loaded === 'string') return this.#failed(trigger, [loaded])
    this.#watched = loaded.files
    if (!loaded.ok) return this.#failed(trigger, loaded.errors.map(formatIssue))
    const { config } = loaded
    noteHash(config, loaded.hash)
    const needsRestart = bootChanges(this.#boot, config)
    try {
      const putIntoForce = await this.#parts.prepare(withServers(config, this.#parts.added()))
      if (this.#isClosed) throw new Error(STOPPING)
      this.#file = config
      if (putIntoForce()) this.#succeeded()
      else this.refresh()
    } catch (error) {
      this.#file = before
      return this.#failed(trigger, [(error as Error).message])
    }
    const hash = this.#parts.inForce()
    // Repeats the warning even for an unchanged plan: a file watcher may have loaded the plan before this request.
    const unarmed = this.#parts.unarmed()
    const warnings = [
      ...loaded.warnings.map((issue: ConfigIssue) => formatIssue(issue)),
      ...(unarmed === undefined ? [] : [unarmed]),
    ]
    for (const warning of warnings) log.warn(warning)
    if (needsRestart.length > 0)
      log.warn({ needsRestart }, 'these keys take effect after a restart of the gateway')
    log.info({ trigger, hash }, 'config reloaded')
    metrics.configReloadSuccess.set(1)
    return { ok: true, hash, needsRestart, warnings }
  }

  /** Reads the files. Resolves to an error message when reading throws, so later reloads still run. */
  async #load(before: Config): Promise<Loaded | string> {
    try {
      const loaded = await this.#parts.load(before)
      return this.#isClosed ? STOPPING : loaded
    } catch (error) {
      return (error as Error).message
    }
  }

  #failed(trigger: string, errors: readonly string[]): ReloadReport {
    const { log, metrics } = this.#parts
    log.error({ trigger, errors }, 'config not reloaded: the old config stays in force')
    metrics.configReloadSuccess.set(0)
    return { ok: false, errors }
  }

  #succeeded(): void {
    const { metrics, clock, inForce } = this.#parts
    metrics.configReloadSuccess.set(1)
    metrics.configReloadTimestamp.set(clock.wall() / 1000)
    metrics.configInfo.reset()
    metrics.configInfo.set({ hash: inForce() }, 1)
  }
}

/**
 * Returns the config with the servers added by the admin API after its own servers. For equal names, the config's own
 * entry counts.
 */
export function withServers(config: Config, added: Readonly<Record<string, ServerConfig>>): Config {
  if (Object.keys(added).length === 0) return config
  return { ...config, mcpServers: { ...config.mcpServers, ...without(added, config.mcpServers) } }
}

function without<T>(record: Readonly<Record<string, T>>, taken: object): Record<string, T> {
  return Object.fromEntries(Object.entries(record).filter(([name]) => !Object.hasOwn(taken, name)))
}

interface ApplyConfigParts {
  readonly live: Live<GatewayGeneration>
  readonly parts: GenerationParts
  readonly state: States
  readonly agents: Agents
  /** Applies the config to parts shared by all generations. `changed`: the top-level keys with changes. */
  readonly follow: (config: Config, changed: ReadonlySet<keyof Config>) => void
}

/** Puts a config into force, creating servers in `renew` anew. Throws, without changes, when it does not compile. */
export function applyConfig(config: Config, renew: ReadonlySet<string>, parts: ApplyConfigParts): void {
  putIntoForce(compileGeneration(config, parts.live.current, parts.parts, renew), renew, parts)
}

/** Like `applyConfig` in two steps, the first over several turns of the event loop; see `ReloaderParts.prepare`. */
export async function prepareConfig(config: Config, parts: ApplyConfigParts): Promise<() => boolean> {
  const before = parts.live.current
  const after = await compileInTurns(config, before, parts.parts)
  return () => {
    const isTimely = parts.live.current === before
    if (isTimely) putIntoForce(after, new Set(), parts)
    else after.close()
    return isTimely
  }
}

function putIntoForce(
  after: GatewayGeneration,
  renew: ReadonlySet<string>,
  { live, parts, state, agents, follow }: ApplyConfigParts,
): void {
  const { config } = after
  const before = live.current
  const hasOtherServers = !sameServers(before, after)
  const changed = changedBlocks(before, after)
  if (hasOtherServers) changed.add('mcpServers')
  live.swap(after)
  if (changed.size > 0) agents.forgetLists()
  const hasOtherPolicies = !isDeepStrictEqual(before.policies, after.policies)
  state.settle(
    (key) => placed(after, key),
    ({ server }) => hasOtherPolicies || before.servers.get(server) !== after.servers.get(server),
    after.state,
  )
  for (const server of before.servers.values()) if (after.servers.get(server.name) !== server) server.retire()
  for (const [name, server] of after.servers) {
    if (before.servers.get(name) !== server) server.start()
    else server.reconfigure(config.mcpServers[name] ?? server.config)
  }
  for (const name of renew) void before.servers.get(name)?.close()
  follow(config, changed)
  if (changed.size > 0) lookForIdleGlobs(parts.log, live)
  if (hasOtherServers) {
    agents.endOrphans()
    agents.tellChanged(listKinds)
  }
  // Runs last, because the steps above need the servers of older generations.
  for (const open of live.open) if (open !== after) open.follow(after.servers)
}

/**
 * Returns a state key with the current index of its replica; undefined when its policy set, server or replica no longer
 * exists.
 */
function placed({ servers, policies, mesh }: GatewayGeneration, key: StateKey): StateKey | undefined {
  if (!mesh.hasSet(key.set)) return undefined
  // State of the gateway itself has no server. State of a whole server has no replica.
  if (key.server === '') return key
  const server = servers.get(key.server)
  if (key.overrides !== undefined && !mayApply(policies, key.server, key.overrides)) return undefined
  if (server === undefined || key.endpoint === undefined) return server && key
  const replica = server.endpoints.indexOf(key.endpoint)
  if (replica === -1) return undefined
  return replica === key.replica ? key : { ...key, replica }
}

function sameServers(a: GatewayGeneration, b: GatewayGeneration): boolean {
  return (
    a.servers.size === b.servers.size &&
    [...a.servers.values()].every((server) => b.servers.get(server.name) === server)
  )
}

/**
 * Returns the top-level keys that differ. A new order of servers counts as a difference, because lists show the order.
 */
function changedBlocks({ config: before, servers }: GatewayGeneration, after: GatewayGeneration) {
  const { config } = after
  const blocks = Object.keys(config) as (keyof Config)[]
  const changed = new Set(blocks.filter((block) => !isDeepStrictEqual(before[block], config[block])))
  const order = [...after.servers.keys()]
  if ([...servers.keys()].some((name, at) => order[at] !== name)) changed.add('mcpServers')
  return changed
}
