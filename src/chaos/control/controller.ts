import { isDeepStrictEqual } from 'node:util'
import type { Clock, Cancel } from '../../mesh/clock.ts'
import { createKeyedRandom } from '../../mesh/keyed-random.ts'
import type { ChaosEvent } from '../events.ts'
import { faults as registered } from '../faults/index.ts'
import { Engine } from '../firing/engine.ts'
import { JournalFile } from '../journal/file.ts'
import { keptIn } from '../journal/head.ts'
import { Journal } from '../journal/journal.ts'
import { KillRecord } from '../kill/kill-record.ts'
import { exists, KillSwitch, watchKillFile } from '../kill/kill-switch.ts'
import { diffPlans, chaos, type ChaosConfig, withoutSecrets } from '../plan/schema.ts'
import { ChaosRun } from './chaos-run.ts'
import { type ControllerParts, DONE, type Done } from './controller-parts.ts'
import { firstOf } from '../../units/numbered.ts'
import { environmentLock, refusalOf } from './guard.ts'
import { RuntimeFaults } from './runtime-faults.ts'
import { type FaultStatus, latestStatus, type Status, statusOf, type StatusParts } from './status.ts'

/** Decides when faults may act, and records who armed or stopped them, and why. */
export class Controller {
  readonly engine: Engine
  readonly journal: Journal
  readonly killSwitch: KillSwitch
  readonly runtime: RuntimeFaults
  readonly #parts: ControllerParts
  /** Set at boot: no reload, header or request can change the lock. */
  readonly #lock: string | undefined
  readonly #run: ChaosRun
  readonly #attachments: Attachments
  readonly #announcer: Announcer
  readonly #killRecord: KillRecord | undefined
  /** True when the process is about to end: arming is then refused. */
  #isStopping = false
  #config: ChaosConfig = chaos.parse({})
  #plannedBy = 'config'
  #booted = false
  #followed: ChaosConfig | undefined

  constructor(parts: ControllerParts) {
    this.#parts = parts
    this.#lock = environmentLock(parts)
    const assembly = assemble(parts, {
      config: () => this.#config,
      refusal: (faults) => this.#refusal(faults),
      onEnd: (by, why) => this.#end(by, why),
    })
    this.engine = assembly.engine
    this.journal = assembly.journal
    this.killSwitch = assembly.killSwitch
    this.runtime = assembly.runtime
    this.#run = assembly.run
    this.#attachments = assembly.attachments
    this.#announcer = assembly.announcer
    this.#killRecord = assembly.killRecord
    this.killSwitch.onKill(() => this.#killed())
  }

  /** A text that changes with the plan, the armed faults and the kill switch, and differs between processes. */
  get revision(): string {
    return this.#announcer.revision
  }

  get config(): ChaosConfig {
    return this.#config
  }

  /**
   * Applies the `chaos` block of the config, at boot and after each reload. An unchanged block does nothing: the armed
   * faults, and a plan set through the admin API, stay.
   */
  follow(config: ChaosConfig): void {
    if (isDeepStrictEqual(config, this.#followed)) return
    this.#followed = config
    this.apply(config)
  }

  /**
   * Applies a config: at boot, and on reloads. The process starts disarmed unless the config says `enabled` and
   * `persist`. A reload that sets `enabled` arms the plan, and a reload that removes `enabled` disarms the plan. Both
   * override an operator's earlier `disarm`. While `enabled` stays set, unchanged faults stay armed with their counters
   * and their time, and an operator's `disarm` holds. Another seed begins another run. A kill, of this process or an
   * earlier process, holds until lifted.
   */
  apply(config: ChaosConfig, by = 'config'): void {
    const before = this.#config
    const boots = !this.#booted
    this.#config = config
    this.#plannedBy = by
    this.#booted = true
    this.#attachments.apply(config)
    if (config.enabled && this.#lock === undefined) this.#killRecord?.reserve()
    if (boots) this.#tellUnrecorded()
    if (!boots) this.#announcer.planned(by, before, config)
    const turnsShadow = (config.mode === 'shadow') !== this.engine.shadow
    this.engine.shadow = config.mode === 'shadow'
    if (turnsShadow) {
      if (this.engine.shadow) this.#run.armed.release('shadow')
      this.#parts.onTurned?.(this.#run.armed.list().map(({ fault }) => fault))
    }
    this.engine.strict = config.strict
    this.engine.debugHeader = config.debugHeader
    if (!config.enabled) this.#end(by, 'chaos.enabled is false')
    else if (this.#run.planned) this.#replace(before, by)
    else if (boots && config.persist) this.arm(by, 'chaos.persist is true')
    else if (!boots && !before.enabled) this.arm(by, 'chaos.enabled was set')
  }

  #replace(before: ChaosConfig, by: string): void {
    this.#run.replace(before, this.#config, by)
    // The remaining faults were armed through the runtime API.
    if (this.#run.armed.size > 0 && !this.#run.planned)
      this.#announcer.last = { ...this.#announcer.last, by, why: 'removed the plan; injected faults stay' }
  }

  /** Arms the faults of the plan that are not armed, expired faults included. */
  arm(by: string, why: string): Done {
    const { faults, seed, mode } = this.#config
    const refusal = this.#refusal(faults.length)
    if (refusal !== undefined) {
      this.#announcer.tell({ type: 'refused', by, why: refusal })
      return { ok: false, why: refusal }
    }
    this.#run.arm(this.#config)
    this.#announcer.turned('armed', by, why, { faults: faults.map(({ name }) => name), seed, mode })
    return DONE
  }

  /**
   * Disarms all faults, and releases the held calls. Records author and reason even if no fault was armed. While the
   * kill switch is on, the kill stays the reason of the state.
   */
  disarm(by: string, why: string): Done {
    this.#run.stop('disarmed')
    if (this.killSwitch.on) this.#announcer.tell({ type: 'disarmed', by, why })
    else this.#announcer.turned('disarmed', by, why)
    return DONE
  }

  /** Disarms the armed faults, if any. */
  #end(by: string, why: string): void {
    if (this.#run.armed.size > 0 || this.#run.planned) this.disarm(by, why)
  }

  /**
   * A warning that names the unarmed faults of an enabled plan, and how to arm them; undefined without unarmed faults.
   */
  get unarmed(): string | undefined {
    const { enabled, faults } = this.#config
    const names = faults.flatMap(({ name }) => (this.#run.armed.get(name) === undefined ? name : []))
    if (!enabled || names.length === 0) return undefined
    const how = this.#refusal(faults.length) ?? '`breakwater chaos arm` arms the plan'
    return `chaos.faults: not armed: ${firstOf(names)}; a reload arms a plan only where it sets chaos.enabled (${how})`
  }

  kill(by: string, why: string): Done {
    this.killSwitch.kill(by, why)
    return DONE
  }

  /** Lifts the kill switch; arms nothing. */
  unkill(by: string, why: string): Done {
    if (!this.killSwitch.on) return DONE
    const file = this.#attachments.killFile
    if (file !== undefined)
      return { ok: false, why: `refused: the kill file ${file} exists; remove it first` }
    this.killSwitch.lift()
    this.#announcer.turned('unkilled', by, why)
    this.#tellUnrecorded()
    return DONE
  }

  /** Releases the calls held by faults that match these servers. Call this when servers become protected. */
  spare(servers: readonly string[]): void {
    this.#run.armed.release('protected', servers)
    this.#parts.onTurned?.(this.#run.armed.list().map(({ fault }) => fault))
  }

  /** Returns why an experiment, with or without faults, may not start now; undefined when it may start. */
  refusalOf(withFaults: boolean): string | undefined {
    if (withFaults || this.killSwitch.on) return this.#refusal(1)
    return this.#lock === undefined ? undefined : `refused: ${this.#lock}`
  }

  renew(by: string): Done {
    if (this.#run.armed.size === 0) return { ok: false, why: 'nothing is armed' }
    this.#run.lease.renew(this.#config.lease)
    this.#announcer.tell({ type: 'renewed', by })
    return DONE
  }

  status(): Status {
    return statusOf({
      config: this.#config,
      last: this.#announcer.last,
      plannedBy: this.#plannedBy,
      environment: this.#parts.environment,
      refusal: this.#refusal(this.#config.faults.length),
      killed: this.killSwitch.on,
      killRecordProblem: this.#killRecord?.problem,
      engineErrors: this.engine.errors,
      ...this.#looks(),
    })
  }

  /** Returns the status of the latest fault with this name, armed or ended; undefined for an unknown name. */
  faultStatus(name: string): FaultStatus | undefined {
    return latestStatus(name, this.#looks())
  }

  #looks(): Pick<StatusParts, 'run' | 'awaitsList' | 'now'> {
    return {
      run: this.#run,
      awaitsList: (server) => this.#parts.awaitsList?.(server) === true,
      now: this.#parts.clock.now(),
    }
  }

  /**
   * Disarms all faults. Calls already hit may still end, and are journaled. Resolves when all earlier entries are
   * written.
   */
  stop(): Promise<void> {
    this.#isStopping = true
    this.#end('shutdown', 'the process ends')
    this.#killRecord?.close()
    return this.#attachments.stop()
  }

  /** Stops, and closes the journal file: later entries are lost. */
  async close(): Promise<void> {
    await this.stop()
    await this.#attachments.close()
  }

  #refusal(faults: number): string | undefined {
    if (this.#isStopping) return 'refused: the gateway is shutting down'
    if (this.killSwitch.on) return 'refused: the kill switch is on; unkill first'
    return refusalOf(this.#lock, this.#config.enabled, faults)
  }

  #killed(): void {
    const { by, why, tookMs } = this.killSwitch.killed ?? { by: 'unknown', why: 'unknown' }
    const { held } = this.#run.armed
    this.#run.stop('killed')
    this.#announcer.turned('killed', by, why, { held, tookMs })
    this.#tellUnrecorded()
  }

  #tellUnrecorded(): void {
    const why = this.#killRecord?.problem
    if (why !== undefined) this.#announcer.tell({ type: 'kill_record_error', why })
  }
}

/** Callbacks through which the parts ask the controller, and report to it. */
interface Control {
  readonly config: () => ChaosConfig
  /** Returns why a plan with this number of faults may not be armed now; undefined when it may be armed. */
  readonly refusal: (faults: number) => string | undefined
  readonly onEnd: (by: string, why: string) => void
}

interface Assembly {
  readonly journal: Journal
  readonly killSwitch: KillSwitch
  readonly killRecord: KillRecord | undefined
  readonly announcer: Announcer
  readonly engine: Engine
  readonly run: ChaosRun
  readonly attachments: Attachments
  readonly runtime: RuntimeFaults
}

function assemble(parts: ControllerParts, control: Control): Assembly {
  const { clock, registry = registered, emit, onTurned = () => undefined } = parts
  const { config, refusal, onEnd } = control
  const journal = new Journal()
  const killRecord = parts.killRecord === undefined ? undefined : new KillRecord(parts.killRecord, clock)
  const kill = new KillSwitch(clock, killRecord)
  const announcer = new Announcer({ clock, journal, emit, killed: kill.killed })
  const onError = (errors: number) => {
    // A strict engine fails calls after its own errors: after a disarm, later calls would pass.
    if (errors >= config().engineErrors && !config().strict) onEnd('engine', `it failed ${errors} times`)
  }
  const engine = new Engine({ ...parts, emit: (event) => announcer.tell(event), kill, journal, onError })
  const onExpired = (fault: string) => {
    announcer.tell({ type: 'expired', by: 'ttl', detail: { fault } })
    announcer.stands(run.armed.size > 0, 'ttl', `the time of ${fault} was up`)
  }
  const run: ChaosRun = new ChaosRun({ clock, kill, registry, engine, onExpired, onEnd, onTurned })
  const onUnwritten = (why: string) => announcer.tell({ type: 'journal_error', why })
  const runtime = new RuntimeFaults({
    clock,
    armed: run.armed,
    registry,
    refusal: () => refusal(1),
    isProtected: (server) => parts.isProtected?.(server) === true,
    maxTtl: () => config().maxTtl,
    random: () => createKeyedRandom(config().seed),
    isPlanned: (name) => config().faults.some((fault) => fault.name === name),
    // Runtime faults may have their own leases, so the run gets no lease.
    onBegin: () => run.begin(undefined),
    onChange(type, by, detail) {
      announcer.tell({ type, by, detail })
      announcer.stands(run.armed.size > 0, by, `a fault was ${type}`)
    },
  })
  const { stateDir, onDropped = () => undefined } = parts
  const attachments = new Attachments({ clock, journal, kill, stateDir, onDropped, onError: onUnwritten })
  return { journal, killSwitch: kill, killRecord, announcer, engine, run, attachments, runtime }
}

interface AnnouncerParts {
  readonly clock: Clock
  readonly journal: Journal
  readonly emit: (event: ChaosEvent) => void
  /** The kill recorded by an earlier process; undefined when there is none. */
  readonly killed: KillSwitch['killed']
}

/** Types of events that change `revision`. */
const changing: ReadonlySet<ChaosEvent['type']> = new Set([
  'armed',
  'disarmed',
  'killed',
  'unkilled',
  'plan',
  'injected',
  'cleared',
  'expired',
])

/** Writes chaos events to the journal, and sends them to listeners. Never throws. */
class Announcer {
  last: { readonly since: number; readonly by: string; readonly why: string }
  readonly #clock: Clock
  readonly #journal: Journal
  readonly #emit: (event: ChaosEvent) => void
  readonly #bootedAt: string
  #changes = 0
  #isArmed = false

  constructor({ clock, journal, emit, killed }: AnnouncerParts) {
    this.#clock = clock
    this.#journal = journal
    this.#emit = emit
    this.#bootedAt = Math.floor(clock.wall()).toString(36)
    this.last =
      killed === undefined
        ? { since: clock.wall(), by: 'boot', why: 'the process started' }
        : { since: killed.at, by: killed.by, why: `${killed.why} (before this process started)` }
  }

  get revision(): string {
    return `${this.#bootedAt}-${this.#changes}`
  }

  tell(said: ChaosEvent): void {
    if (changing.has(said.type)) this.#changes++
    try {
      const event = withoutSecrets(said)
      this.#journal.control(this.#clock.wall(), event)
      this.#emit(event)
    } catch {
      // A listener's error must not stop the reported action.
    }
  }

  /** Reports the changes between two configs; an unchanged config reports nothing. */
  planned(by: string, before: ChaosConfig, config: ChaosConfig): void {
    if (isDeepStrictEqual(before, config)) return
    const { enabled, mode, seed, faults } = config
    this.tell({ type: 'plan', by, detail: { ...diffPlans(before.faults, faults), enabled, mode, seed } })
  }

  /** Records author and reason when the first fault was armed, or the last fault has ended. */
  stands(isArmed: boolean, by: string, why: string): void {
    if (isArmed === this.#isArmed) return
    this.#isArmed = isArmed
    this.last = { since: this.#clock.wall(), by, why }
  }

  turned(type: 'armed' | 'disarmed' | 'killed' | 'unkilled', by: string, why: string, detail?: object): void {
    this.#isArmed = type === 'armed'
    this.last = { since: this.#clock.wall(), by, why }
    this.tell({ type, by, why, ...(detail && { detail: { ...detail } }) })
  }
}

interface AttachmentParts {
  readonly clock: Clock
  readonly journal: Journal
  readonly kill: KillSwitch
  readonly stateDir: string | undefined
  readonly onDropped: (count: number) => void
  readonly onError: (why: string) => void
}

/** Opens and closes the files of the engine as configured: the journal and the kill file. */
class Attachments {
  readonly #parts: AttachmentParts
  #journal: ChaosConfig['journal'] | undefined
  #file: JournalFile | undefined
  #killFile: string | undefined
  #unwatch: Cancel = () => undefined

  constructor(parts: AttachmentParts) {
    this.#parts = parts
  }

  /** The path of the kill file, if the file exists now. */
  get killFile(): string | undefined {
    return this.#killFile !== undefined && exists(this.#killFile) ? this.#killFile : undefined
  }

  apply({ journal, killFile }: Pick<ChaosConfig, 'journal' | 'killFile'>): void {
    const { clock, kill } = this.#parts
    if (!isDeepStrictEqual(journal, this.#journal)) this.#open(journal)
    if (killFile === this.#killFile) return
    this.#killFile = killFile
    this.#unwatch()
    this.#unwatch = killFile === undefined ? () => undefined : watchKillFile(killFile, kill, clock)
  }

  /** Resolves when all earlier journal entries are written, or their writing has failed. */
  stop(): Promise<void> {
    this.#unwatch()
    return this.#file?.flush() ?? Promise.resolve()
  }

  close(): Promise<void> {
    return this.#file?.close() ?? Promise.resolve()
  }

  #open(config: ChaosConfig['journal']): void {
    const { journal, stateDir, ...parts } = this.#parts
    const { file: path, maxSize, keep } = config
    const after = this.#file
    this.#journal = config
    this.#file =
      path === undefined
        ? undefined
        : new JournalFile({ ...parts, path, keptIn: keptIn(path, stateDir), maxSize, keep, after })
    journal.sink = this.#file
  }
}
