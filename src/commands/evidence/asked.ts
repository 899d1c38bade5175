import type { Env } from '../../config/files/interpolate.ts'
import { firstOf } from '../../units/numbered.ts'
import { roundedDuration } from '../../units/duration.ts'
import type { Output } from '../shared/arguments.ts'
import { paintOf, type Values } from '../shared/control-command.ts'
import { type Cell, table } from '../shared/table.ts'

/** A question as the user asked it. */
export interface Asked {
  readonly values: Values & { readonly state: string | undefined; readonly config: string | undefined }
  readonly positionals: readonly string[]
  readonly out: Output
  readonly env: Env
}

/** Prints an answer as JSON or as lines. Resolves to exit code 0. */
export function answer(
  { values, out }: Asked,
  data: unknown,
  lines: () => readonly string[],
): Promise<number> {
  if (values.json === true) out.stdout(JSON.stringify(data, undefined, 2))
  else for (const line of lines()) out.stdout(line)
  return Promise.resolve(0)
}

/** Returns the lines of a table; `none` for an empty table. */
export const rows = (
  { out }: Asked,
  head: readonly string[],
  cells: readonly (readonly Cell[])[],
  none = 'no runs',
): readonly string[] =>
  cells.length === 0 ? [none] : table(head, cells, out.width ?? Infinity, paintOf({ out }))

/** Joins names, each once. */
export const oneEach = (names: readonly string[]) => firstOf([...new Set(names)])
/** Returns a number with three digits. */
export const numberOf = (value: number) => String(Number(value.toPrecision(3)))

/** `share`: in [0, 1]. */
export const percent = (share: number) => `${numberOf(100 * share)} %`
/** Returns a moment in UTC, in milliseconds since the epoch, as `2026-11-30 19:57`. */
export const dateOf = (at: number) => new Date(at).toISOString().replace('T', ' ').slice(0, 16)
/** `ms`: a duration. */
export const timeOf = (ms: number | undefined) => (ms === undefined ? '–' : roundedDuration(ms))
