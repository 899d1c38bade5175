import type { ChaosState, FaultCounts, Faults } from '../../src/commands/scenario/control.ts'

/** What a fault has done, whenever it is asked. */
export const counts = {
  type: 'conn.refused',
  decided: 8,
  hits: 5,
  concurrent: 0,
  masked: 2,
  surfaced: 2,
  escaped: 1,
}

/** A gateway on which things can go wrong. */
export class FakeGateway implements Faults {
  readonly injected: unknown[] = []
  readonly cleared: string[] = []
  counts: Omit<FaultCounts, 'id'> = counts
  engineErrors = 0
  mode: ChaosState['mode'] = 'act'
  maxTtl = Infinity
  looks = 0
  /** Runs at each look at the state. */
  onLook: (look: number) => void = () => undefined
  #active: string[] = []

  async state(): Promise<ChaosState> {
    this.onLook(this.looks++)
    const faults = this.#active.map((id) => ({ ...this.counts, id }))
    return { state: 'armed', mode: this.mode, engineErrors: this.engineErrors, faults }
  }

  async inject(fault: object, durationMs: number) {
    this.injected.push({ ...fault, durationMs })
    const id = `fault-${this.injected.length}`
    this.#active.push(id)
    return { id, durationMs: Math.min(durationMs, this.maxTtl) }
  }

  async clear(id: string): Promise<void> {
    this.cleared.push(id)
    this.end(id)
  }

  end(id: string): void {
    this.#active = this.#active.filter((other) => other !== id)
  }
}
