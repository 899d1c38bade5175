import { isDeepStrictEqual } from 'node:util'
import type { Engine } from '../firing/engine.ts'
import type { Journal } from '../journal/journal.ts'
import type { KillSwitch } from '../kill/kill-switch.ts'
import { chaos, type ChaosConfig } from '../plan/schema.ts'
import type { Announcer } from './announcer.ts'
import { assemble } from './assemble.ts'
import type { Attachments } from './attachments.ts'
import { DONE, type ControllerParts, type Done } from './controller-parts.ts'
import { environmentLock, refusalOf } from './guard.ts'
import type { Run } from './run.ts'
import type { RuntimeFaults } from './runtime-faults.ts'
import { statusOf, type Status } from './status.ts'

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
