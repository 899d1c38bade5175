import type { ParseArgsConfig } from 'node:util'
import type { Env } from '../../config/files/interpolate.ts'
import type { Out } from '../validate.ts'
import type { Control } from './control.ts'
import { printable } from '../../telemetry/printable.ts'

/** Values of options, by name, as `parseArgs` reads them. */
export type Values = Readonly<Record<string, string | boolean | (string | boolean)[] | undefined>>

/** What a command is told, and where it writes. */
export interface Given {
  readonly values: Values
  /** One for each of the command's `positionals`. */
  readonly positionals: readonly string[]
  /** The running gateway. */
  readonly control: Control
  readonly out: Out
  readonly env: Env
  /** Characters in a line of the terminal. */
  readonly width: number
}

/** One of the commands of `breakwater chaos`. */
export interface Command {
  /** Names of what has to follow the command. */
  readonly positionals?: readonly string[]
  readonly options?: NonNullable<ParseArgsConfig['options']>
  /** Resolves to the exit code: 0, or 1 when it did not work. Throws `Misuse`. */
  run(given: Given): Promise<number>
}

/** Arguments that cannot be meant so. */
export class Misuse extends Error {}

/** The text of an option; undefined when it is not given. */
export function textOf(values: Values, name: string): string | undefined {
  const value = values[name]
  return typeof value === 'string' ? value : undefined
}

/** The number of an option, which has to be one from 0 on; undefined when it is not given. */
export function numberOf(values: Values, name: string): number | undefined {
  const text = textOf(values, name)
  if (text === undefined) return undefined
  if (!/^\d+(\.\d+)?$/.test(text)) throw new Misuse(`--${name} must be a number, not "${text}"`)
  return Number(text)
}

/** Asks the gateway, and shows its answer: as it is with `--json`, else as `show` says it in lines. */
export async function ask(
  { control, values, out }: Given,
  request: { readonly method: 'GET' | 'POST'; readonly path: string; readonly body?: unknown },
  show: (answer: never) => readonly string[],
): Promise<number> {
  const answered = await control(request)
  if (!answered.ok) {
    out.stderr(`breakwater: ${answered.message}`)
    return 1
  }
  if (values.json === true) out.stdout(JSON.stringify(answered.value, undefined, 2))
  else for (const line of show(answered.value as never)) out.stdout(printable(line))
  return 0
}
