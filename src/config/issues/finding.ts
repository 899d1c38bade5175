import type { Path } from '../files/path.ts'

/** Something about keys that are right one by one. */
export interface Finding {
  readonly path: Path
  /** Whether the name of the key is at fault, or its value. */
  readonly at: 'key' | 'value'
  readonly message: string
}
