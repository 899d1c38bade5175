import type { ConfigPath } from './path.ts'

/** A point in a file; both count from 1. */
export interface Position {
  readonly line: number
  readonly column: number
}

/** Where a value was written. */
export interface Origin {
  readonly file: string
  /** Of its key; absent for list entries and for the root of a file. */
  readonly key: Position | undefined
  readonly value: Position
  /** Whether it is a map or a list, which people look for at its key. */
  readonly collection: boolean
  /** The variables that its text came from. */
  readonly variables: readonly string[]
}

/** Where every value of a config was written, over all of its files. */
export class Origins {
  readonly #origins = new Map<string, Origin>()

  set(path: ConfigPath, origin: Origin): void {
    this.#origins.set(JSON.stringify(path), origin)
  }

  get(path: ConfigPath): Origin | undefined {
    return this.#origins.get(JSON.stringify(path))
  }

  /** The place to show for `path`: its own, or that of the innermost thing around it that was written. */
  locate(path: ConfigPath, at: 'key' | 'value' = 'value'): { file: string } & Partial<Position> {
    for (let length = path.length; length >= 0; length--) {
      const origin = this.get(path.slice(0, length))
      if (origin === undefined) continue
      const byKey = length < path.length || at === 'key' || origin.collection
      return { file: origin.file, ...((byKey ? origin.key : undefined) ?? origin.value) }
    }
    return { file: '' }
  }
}
