import type { Millis } from '../../src/mesh/clock.ts'
import type { DurableRecord, DurableRecords, DurableStore } from '../../src/mesh/policy.ts'

/** A store that outlives the policy contexts of a test and keeps values as JSON. */
export class MemoryStore implements DurableStore {
  readonly records = new Map<string, { readonly json: string; readonly expiresAt: Millis }>()
  #held: Promise<void> | undefined
  #release: () => void = () => undefined

  of(owner: Parameters<DurableStore['of']>[0]): DurableRecords {
    const prefix = `${owner.kind} ${owner.set} ${owner.server} `
    return {
      take: () =>
        [...this.records].flatMap(([key, { json, expiresAt }]): DurableRecord[] =>
          key.startsWith(prefix)
            ? [{ id: key.slice(prefix.length), value: JSON.parse(json) as unknown, expiresAt }]
            : [],
        ),
      put: (id, value, expiresAt) => {
        this.records.set(prefix + id, { json: JSON.stringify(value), expiresAt })
        return this.#held ?? Promise.resolve()
      },
      delete: (id) => void this.records.delete(prefix + id),
    }
  }

  /** Makes writes wait until `release`. */
  hold(): void {
    this.#held = new Promise((resolve) => (this.#release = resolve))
  }

  release(): void {
    this.#held = undefined
    this.#release()
  }
}
