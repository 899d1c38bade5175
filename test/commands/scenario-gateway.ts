import { newFaultCounts } from '../../src/chaos/accounting/counts.ts'
import type { Counted } from '../../src/commands/break/scenario/evidence.ts'
import type { Aimed } from '../../src/commands/break/scenario/library.ts'
import type {
  ChaosState,
  FaultCounts,
  Faults,
  KnownServer,
} from '../../src/commands/break/scenario/gateway.ts'

/** The counts that every status of a fault returns. */
export const counts = {
  ...newFaultCounts(),
  discovery: newFaultCounts(),
  injected: 5,
  type: 'conn.refused',
  decided: 8,
  hits: 5,
  concurrent: 0,
  masked: 2,
  surfaced: 2,
  escaped: 1,
}

/** A gateway with settable failures. */
export class FakeGateway implements Faults {
  readonly injected: unknown[] = []
  /** Warnings on each injected fault. */
  warnings: readonly string[] = []
  /** Counts of single faults by id, instead of `counts`. */
  readonly countsById: Record<string, object> = {}
  readonly renewed: (readonly string[])[] = []
  readonly cleared: string[] = []
  counts: Omit<FaultCounts, 'id'> = counts
  engineErrors = 0
  mode: ChaosState['mode'] = 'act'
  maxTtl = Infinity
  looks = 0
  /** Tools whose breakers were renewed. */
  asNew: readonly string[] = []
  open: readonly string[] = []
  /** Runs at each look at the state. */
  onLook: (look: number) => void = () => undefined
  #active: string[] = []

  async state(): Promise<ChaosState> {
    this.onLook(this.looks++)
    const faults = this.#active.map((id) => ({ ...this.counts, ...this.countsById[id], id }))
    const { mode, engineErrors, maxTtl } = this
    return { state: 'armed', mode, seed: 42, engineErrors, maxTtl, faults }
  }

  async inject(fault: object, durationMs: number) {
    this.injected.push({ ...fault, durationMs })
    const id = `fault-${this.injected.length}`
    this.#active.push(id)
    return { id, warnings: this.warnings }
  }

  async countsOf(name: string): Promise<FaultCounts | undefined> {
    const index = this.injected.findIndex((fault) => (fault as Aimed).config.name === name)
    const id = `fault-${index + 1}`
    return { ...this.counts, ...this.countsById[id], id }
  }

  async servers(): Promise<readonly KnownServer[]> {
    return ['search-1', 'search-2'].map((name) => ({ name, transport: 'http', isUp: true }))
  }

  async breakers(): Promise<readonly string[]> {
    return this.open
  }

  async renewBreakers(tools: readonly string[]): Promise<void> {
    this.asNew = tools
  }

  async metricsAge() {
    return 0
  }

  async counters(): Promise<Counted> {
    return { calls: 0, attempts: 0, retries: 0, rejections: {}, verdicts: {} }
  }

  async renew(ids: readonly string[]): Promise<void> {
    this.renewed.push(ids)
  }

  async clear(id: string): Promise<void> {
    this.cleared.push(id)
    this.end(id)
  }

  end(id: string): void {
    this.#active = this.#active.filter((other) => other !== id)
  }
}
