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

/** A place in a config, and those within it. */
interface Place {
  origin?: Origin
  inside?: Map<string | number, Place>
}

/** Where every value of a config was written, over all of its files. */
export class Origins {
  /** A tree: whole paths as keys would hold the name of a map once more for each of its values, and a name may be as long as its file. */
  readonly #root: Place = {}

  set(path: ConfigPath, origin: Origin): void {
    let place = this.#root
    for (const key of path) {
      place.inside ??= new Map()
      let inner = place.inside.get(key)
      if (inner === undefined) place.inside.set(key, (inner = {}))
      place = inner
    }
    place.origin = origin
  }

  get(path: ConfigPath): Origin | undefined {
    let place: Place | undefined = this.#root
    for (const key of path) place = place?.inside?.get(key)
    return place?.origin
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
