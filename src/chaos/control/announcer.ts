import { isDeepStrictEqual } from 'node:util'
import type { Clock } from '../../mesh/clock.ts'
import type { ChaosEvent } from '../events.ts'
import type { Journal } from '../journal/journal.ts'
import { diffPlans } from '../plan/diff.ts'
import type { ChaosConfig } from '../plan/schema.ts'
import { withoutSecrets } from '../plan/without-secrets.ts'

/** Tells what happens to the engine: in the journal, and to whoever listens. Never throws. */
export class Announcer {
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
