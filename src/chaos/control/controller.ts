import { isDeepStrictEqual } from 'node:util'
import type { Clock } from '../../mesh/clock.ts'
import { createDice } from '../../mesh/dice.ts'
import type { ChaosEvent } from '../events.ts'
import { faults as registered } from '../faults/index.ts'
import { Engine } from '../firing/engine.ts'
import { Journal } from '../journal/journal.ts'
import { KillSwitch } from '../kill/kill-switch.ts'
import { diffPlans } from '../plan/diff.ts'
import { chaos, type ChaosConfig } from '../plan/schema.ts'
import { withoutSecrets } from '../plan/without-secrets.ts'
import { Run } from './armory.ts'
import { Attachments } from './attachments.ts'
import { type ControllerParts, DONE, type Done } from './controller-parts.ts'
import { environmentLock, refusalOf } from './guard.ts'
import { RuntimeFaults } from './runtime-faults.ts'
import { type Status, statusOf } from './status.ts'

/** Says when faults may do anything: who armed them, who stopped them, and why. */
export class Controller {
  readonly engine: Engine
  readonly journal: Journal
  readonly killSwitch: KillSwitch
  /** Faults of the runtime API. */
  readonly runtime: RuntimeFaults
  readonly #parts: ControllerParts
  /** Taken at boot: no reload, header or request can change it. */
  readonly #lock: string | undefined
  readonly #run: Run
  readonly #attachments: Attachments
  readonly #announcer: Announcer
  #config: ChaosConfig = chaos.parse({})
  #booted = false
  /** What the config said last. */
  #followed: ChaosConfig | undefined

  constructor(parts: ControllerParts) {
    this.#parts = parts
    this.#lock = environmentLock(parts)
    const assembly = assemble(parts, {
      config: () => this.#config,
      refusal: (faults) => this.#refusal(faults),
      onEnd: (by, why) => void this.disarm(by, why),
    })
    this.engine = assembly.engine
    this.journal = assembly.journal
    this.killSwitch = assembly.killSwitch
    this.runtime = assembly.runtime
    this.#run = assembly.run
    this.#attachments = assembly.attachments
    this.#announcer = assembly.announcer
    this.killSwitch.onKill(() => this.#killed())
  }

  /** The one in force. */
  get config(): ChaosConfig {
    return this.#config
  }

  /**
   * Takes the block of the config that is in force, at boot and whenever another config has come into force. One that says
   * what it said before changes nothing: neither what is armed, nor a plan that was put in its place by hand.
   */
  follow(config: ChaosConfig): void {
    if (isDeepStrictEqual(config, this.#followed)) return
    this.#followed = config
    this.apply(config)
  }

  /**
   * Takes a config: at boot the first time, from reloads afterwards. The process starts disarmed unless the config
   * says `enabled` and `persist`. A reload that sets `enabled` arms the plan, one that takes it away disarms it; while
   * it stays set, faults that did not change stay armed with their counters and their time, and an operator's
   * `disarm` holds. Another seed is another run.
   */
  apply(config: ChaosConfig, by = 'config'): void {
    const before = this.#config
    const boots = !this.#booted
    this.#config = config
    this.#booted = true
    this.#attachments.apply(config)
    if (!boots) this.#announcer.planned(by, before, config)
    if (config.mode === 'shadow' && !this.engine.shadow) this.#run.armory.release('shadow')
    this.engine.shadow = config.mode === 'shadow'
    this.engine.strict = config.strict
    if (!config.enabled) this.disarm(by, 'chaos.enabled is false')
    else if (this.#run.planned) this.#run.replace(before, config, by)
    else if (boots && config.persist) this.arm(by, 'chaos.persist is true')
    else if (!boots && !before.enabled) this.arm(by, 'chaos.enabled was set')
  }

  /** Arms the faults of the plan that are not armed, those whose time was up among them. */
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

  /** Disarms everything, and lets go of the calls that are held. */
  disarm(by: string, why: string): Done {
    if (this.#run.armory.size === 0 && !this.#run.planned) return DONE
    this.#run.stop('disarmed')
    this.#announcer.turned('disarmed', by, why)
    return DONE
  }

  /** Throws the kill switch. */
  kill(by: string, why: string): Done {
    this.killSwitch.kill(by, why)
    return DONE
  }

  /** Lifts the kill switch; nothing is armed by it. */
  unkill(by: string, why: string): Done {
    if (!this.killSwitch.on) return DONE
    this.killSwitch.lift()
    this.#announcer.turned('unkilled', by, why)
    return DONE
  }

  /** Begins the time of the lease again. */
  renew(by: string): Done {
    if (this.#run.armory.size === 0) return { ok: false, why: 'nothing is armed' }
    this.#run.lease.renew(this.#config.lease)
    this.#announcer.tell({ type: 'renewed', by })
    return DONE
  }

  status(): Status {
    return statusOf({
      config: this.#config,
      last: this.#announcer.last,
      environment: this.#parts.environment,
      refusal: this.#refusal(this.#config.faults.length),
      run: this.#run,
      killed: this.killSwitch.on,
      engineErrors: this.engine.errors,
      now: this.#parts.clock.now(),
    })
  }

  /** Disarms, and resolves when the journal is written. */
  close(): Promise<void> {
    this.disarm('shutdown', 'the process ends')
    return this.#attachments.close()
  }

  #refusal(faults: number): string | undefined {
    if (this.killSwitch.on) return 'refused: the kill switch is on; unkill first'
    return refusalOf(this.#lock, this.#config.enabled, faults)
  }

  #killed(): void {
    const { by, why, tookMs } = this.killSwitch.killed ?? { by: 'unknown', why: 'unknown' }
    const { held } = this.#run.armory
    this.#run.stop('killed')
    this.#announcer.turned('killed', by, why, { held, tookMs })
  }
}

/** What the parts ask of whoever controls them, and tell them. */
interface Control {
  readonly config: () => ChaosConfig
  /** Why a plan of so many faults may not be armed now; undefined when it may. */
  readonly refusal: (faults: number) => string | undefined
  /** The run is to end, by whose doing and why. */
  readonly onEnd: (by: string, why: string) => void
}

/** The parts of the chaos mesh, put together. */
interface Assembly {
  readonly journal: Journal
  readonly killSwitch: KillSwitch
  readonly announcer: Announcer
  readonly engine: Engine
  readonly run: Run
  readonly attachments: Attachments
  readonly runtime: RuntimeFaults
}

function assemble(parts: ControllerParts, control: Control): Assembly {
  const { clock, registry = registered, armOf = () => undefined, emit } = parts
  const { config, refusal, onEnd } = control
  const journal = new Journal()
  const kill = new KillSwitch(() => clock.now())
  const announcer = new Announcer(clock, journal, emit)
  const onError = (errors: number) => {
    if (errors >= config().engineErrors) onEnd('engine', `it failed ${errors} times`)
  }
  const engine = new Engine({ ...parts, emit: (event) => announcer.tell(event), kill, journal, onError })
  const onExpired = (fault: string) => announcer.tell({ type: 'expired', by: 'ttl', detail: { fault } })
  const run = new Run({ clock, kill, registry, armOf, engine, onExpired, onEnd })
  const onUnwritten = (why: string) => announcer.tell({ type: 'journal_error', why })
  const runtime = new RuntimeFaults({
    armory: run.armory,
    registry,
    refusal: () => refusal(1),
    maxTtl: () => config().maxTtl,
    dice: () => createDice(config().seed),
    isPlanned: (name) => config().faults.some((fault) => fault.name === name),
    onBegin: () => run.begin(config().lease),
    onChange: (type, by, detail) => announcer.tell({ type, by, detail }),
  })
  const attachments = new Attachments({ clock, journal, kill, onError: onUnwritten })
  return { journal, killSwitch: kill, announcer, engine, run, attachments, runtime }
}

/** Tells what happens to the engine: in the journal, and to whoever listens. Never throws. */
class Announcer {
  /** The last change of state. */
  last: { readonly since: number; readonly by: string; readonly why: string }
  readonly #clock: Clock
  readonly #journal: Journal
  readonly #emit: (event: ChaosEvent) => void

  constructor(clock: Clock, journal: Journal, emit: (event: ChaosEvent) => void) {
    this.#clock = clock
    this.#journal = journal
    this.#emit = emit
    this.last = { since: clock.wall(), by: 'boot', why: 'the process started' }
  }

  tell(said: ChaosEvent): void {
    try {
      const event = withoutSecrets(said)
      this.#journal.control(this.#clock.wall(), event)
      this.#emit(event)
    } catch {
      // Whoever listens may not stop what they are told about.
    }
  }

  /** Tells what a new config changes; nothing when it is the old one. */
  planned(by: string, before: ChaosConfig, config: ChaosConfig): void {
    if (isDeepStrictEqual(before, config)) return
    const { enabled, mode, seed, faults } = config
    this.tell({ type: 'plan', by, detail: { ...diffPlans(before.faults, faults), enabled, mode, seed } })
  }

  /** Tells of a change of state. */
  turned(type: 'armed' | 'disarmed' | 'killed' | 'unkilled', by: string, why: string, detail?: object): void {
    this.last = { since: this.#clock.wall(), by, why }
    this.tell({ type, by, why, ...(detail && { detail: { ...detail } }) })
  }
}
