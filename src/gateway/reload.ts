import { bootChanges } from '../config/boot-keys.ts'
import type { ReloadReport } from '../config/reload-report.ts'
import { formatIssue, type ConfigIssue } from '../config/issues/issues.ts'
import type { Loaded } from '../config/load.ts'
import type { Config, ServerConfig } from '../config/schema/schema.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'

export interface ReloaderParts {
  readonly load: () => Promise<Loaded>
  /** Compiles the config and puts it into force; throws when it does not compile. */
  readonly apply: (config: Config, renew: ReadonlySet<string>) => void
  /** Names all that is in force: also servers that were added, and keys that a reload does not change. */
  readonly inForce: () => string
  /** Servers that are not in the file. */
  readonly added: () => Readonly<Record<string, ServerConfig>>
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
}

/** Brings configs into force, one after the other. A bad one changes nothing. */
export class Reloader {
  readonly #parts: ReloaderParts
  readonly #boot: Config
  #file: Config
  #watched: readonly string[]
  #last: Promise<unknown> = Promise.resolve()

  /** `first` is in force already, with `files` behind it. */
  constructor(first: Config, files: readonly string[], parts: ReloaderParts) {
    this.#parts = parts
    this.#boot = first
    this.#file = first
    this.#watched = files
    this.#succeeded()
  }

  /** The files to watch: also those of a config that could not be read. */
  get files(): readonly string[] {
    return this.#watched
  }

  /** Names of the servers in the config file. */
  get configured(): ReadonlySet<string> {
    return new Set(Object.keys(this.#file.mcpServers))
  }

  /** Reads the files again. Attempts queue up; never rejects. */
  reload(trigger: string): Promise<ReloadReport> {
    const attempt = this.#last.then(() => this.#reload(trigger))
    this.#last = attempt
    return attempt
  }

  /** Puts the config that was read last into force again, with what was added since; `renew` names servers to make anew. */
  refresh(renew: ReadonlySet<string> = new Set()): void {
    this.#parts.apply(withServers(this.#file, this.#parts.added()), renew)
    this.#succeeded()
  }

  async #reload(trigger: string): Promise<ReloadReport> {
    const { log, metrics, load } = this.#parts
    const loaded = await load()
    this.#watched = loaded.files
    if (!loaded.ok) return this.#failed(trigger, loaded.errors.map(formatIssue))
    const needsRestart = bootChanges(this.#boot, loaded.config)
    const before = this.#file
    this.#file = loaded.config
    try {
      this.refresh()
    } catch (error) {
      this.#file = before
      return this.#failed(trigger, [(error as Error).message])
    }
    const hash = this.#parts.inForce()
    const warnings = loaded.warnings.map((issue: ConfigIssue) => formatIssue(issue))
    for (const warning of warnings) log.warn(warning)
    if (needsRestart.length > 0)
      log.warn({ needsRestart }, 'these keys take effect when the gateway starts anew')
    log.info({ trigger, hash }, 'config reloaded')
    metrics.configReloadSuccess.set(1)
    return { ok: true, hash, needsRestart, warnings }
  }

  #failed(trigger: string, errors: readonly string[]): ReloadReport {
    const { log, metrics } = this.#parts
    log.error({ trigger, errors }, 'config not reloaded: the old one goes on')
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

/** The config with servers of the admin API behind its own, which win. */
export function withServers(config: Config, added: Readonly<Record<string, ServerConfig>>): Config {
  return { ...config, mcpServers: { ...config.mcpServers, ...without(added, config.mcpServers) } }
}

function without<T>(record: Readonly<Record<string, T>>, taken: object): Record<string, T> {
  return Object.fromEntries(Object.entries(record).filter(([name]) => !Object.hasOwn(taken, name)))
}
