import { parseArgs } from 'node:util'
import type { Millis } from '../../mesh/clock.ts'
import { duration } from '../../units/duration.ts'
import { Misuse } from '../chaos/command.ts'
import type { Aim } from './aimed.ts'

export const usage = `breakwater scenario: ready-made faults, with what to expect of the mesh

  breakwater scenario list              the scenarios that there are
  breakwater scenario run NAME          runs one against a running gateway; NAME may be a file (./mine.yaml)

  --server GLOB         the servers to hit (default: all)
  --duration DURATION   how long, such as 60s (default: what the scenario says)
  --allow-writes        hits tools not known to be read-only, whatever the scenario says
  --control URL         the control port (default: http://127.0.0.1:8081)
  --token TOKEN         the control token (default: BREAKWATER_TOKEN, or what the gateway wrote for its own user)

  Exit codes: 0; 1 when it could not run; 2 when it ran and proves nothing, or the arguments make no sense.`

const options = {
  server: { type: 'string', default: '*' },
  duration: { type: 'string' },
  control: { type: 'string', default: 'http://127.0.0.1:8081' },
  token: { type: 'string' },
  'allow-writes': { type: 'boolean', default: false },
  help: { type: 'boolean', short: 'h' },
} as const

/** A run, as the arguments have it. */
export interface RunAsked {
  readonly what: 'run'
  /** Of the library, or the path of a file. */
  readonly name: string
  readonly aim: Aim
  /** Undefined: as long as the scenario says. */
  readonly durationMs: Millis | undefined
  /** URL of the control port. */
  readonly control: string
  readonly token: string | undefined
}

/** What the arguments ask for. */
export type Asked = RunAsked | { readonly what: 'help' | 'list' }

/** Reads the arguments behind `breakwater scenario`. Throws `Misuse`. */
export function readArguments(args: readonly string[]): Asked {
  const { values, positionals } = parsed(args)
  const [what, name, ...rest] = positionals
  if (values.help === true) return { what: 'help' }
  if (what === 'list' && name === undefined) return { what }
  if (what !== 'run' || name === undefined || rest.length > 0) throw new Misuse('expected list, or run NAME')
  const { server, control, token } = values
  if (!/^https?:\/\/[^/]/.test(control) || !URL.canParse(control))
    throw new Misuse(`--control must be a URL such as ${options.control.default}, not "${control}"`)
  const aim = { server, allowWrites: values['allow-writes'] }
  return { what, name, aim, durationMs: lengthOf(values.duration), control, token }
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true })
  } catch (error) {
    throw new Misuse((error as Error).message)
  }
}

function lengthOf(text: string | undefined): Millis | undefined {
  if (text === undefined) return undefined
  const read = duration({ min: 1_000 }).safeParse(text)
  if (!read.success) throw new Misuse(`--duration: ${read.error.issues[0]?.message}`)
  return read.data
}
