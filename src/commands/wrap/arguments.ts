import { parseArgs, type ParseArgsConfig } from 'node:util'
import type { Output } from '../start.ts'

type Options = NonNullable<ParseArgsConfig['options']>

/** Arguments that could not be read. */
interface Misused {
  readonly ok: false
  readonly message: string
}

/** Reads the arguments of a command; all that stands behind `--` is positional. */
export function parsed<const Given extends Options>(args: readonly string[], options: Given) {
  try {
    return { ok: true, ...parseArgs({ args: [...args], options, allowPositionals: true }) } as const
  } catch (error) {
    return { ok: false, message: (error as Error).message } satisfies Misused
  }
}

/** Says how a command is used: because somebody asked (exit code 0), or got it wrong (2). */
export function explained(given: { readonly ok: true } | Misused, usage: string, out: Output): number {
  if (given.ok) {
    out.stdout(usage)
    return 0
  }
  out.stderr(`breakwater: ${given.message}\n\n${usage}`)
  return 2
}
