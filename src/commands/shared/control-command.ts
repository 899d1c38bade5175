import type { Status } from '../../chaos/control/status.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { controlAccess, Misuse, type Options, type Output, runCommand, unknownCommand } from './arguments.ts'
import { type Control, controlAt } from './control.ts'
import { type Paint, plain, type Tone } from '../../telemetry/colours.ts'
import { printable, printablePainted } from '../../telemetry/printable.ts'

/** Values of options, by name. */
export type Values = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>

/** Values and positionals of a command, and the places to read from and write to. */
export interface Given {
  readonly values: Values
  /** One for each of the command's `positionals`. */
  readonly positionals: readonly string[]
  /** The running gateway. */
  readonly control: Control
  readonly out: Output
  readonly env: Env
  /** Characters in a line of the terminal. */
  readonly width: number
}

/** One of the commands of `breakwater chaos`. */
export interface Command {
  /** Names of what has to follow the command. */
  readonly positionals?: readonly string[]
  /** Besides those that all have. */
  readonly options?: Options
  /** Resolves to the exit code: 0, or 1 when it did not work. Throws `Misuse`. */
  run(given: Given): Promise<number>
}

/** Options of all such commands. */
export const common = { ...controlAccess, json: { kind: 'flag', about: 'the answer as it is' } } as const

/** Runs the command that the first argument names. Resolves to the exit code; 2 when the arguments make no sense. */
export function runNamed(
  [name = '', ...rest]: readonly string[],
  { usage, commands }: { readonly usage: string; readonly commands: Readonly<Record<string, Command>> },
  out: Output,
  env: Env,
  width = out.width ?? Infinity,
): Promise<number> {
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  const own = ['help', '--help', '-h'].includes(name) ? ['--help'] : command === undefined ? [] : rest
  const { options, positionals = [] } = command ?? {}
  const expected = { usage, options: { ...common, ...options }, positionals }
  return runCommand(own, expected, out, async (values, positionals) => {
    if (command === undefined) throw new Misuse(unknownCommand(name, Object.keys(commands)))
    const control = controlAt({ base: values.control, token: values.token, env })
    return command.run({ values, positionals, control, out, env, width })
  })
}

/** The text of an option; undefined when it is not given. */
export function textOf(values: Values, name: string): string | undefined {
  const value = values[name]
  return typeof value === 'string' ? value : undefined
}

/** The number of an option; undefined when it is not given. */
export function numberOf(values: Values, name: string): number | undefined {
  const value = values[name]
  return typeof value === 'number' ? value : undefined
}

/** The state of the whole mesh, as it strikes an operator. */
export const stateTones: Readonly<Record<Status['state'], Tone>> = {
  disarmed: 'good',
  armed: 'doubtful',
  killed: 'bad',
}

/** Returns a sentence for each fault and server: the fault leaves the server's calls alone while the server's list is unknown. */
export const awaitedLists = (faults: Status['faults']): string[] =>
  faults.flatMap(({ name, awaitedLists: servers }) =>
    servers.map((server) =>
      printable(`${name} leaves calls of ${server} alone, as the list of ${server} is not known`),
    ),
  )

/** A column of a table of faults. */
interface FaultColumn {
  readonly head: readonly string[]
  readonly cells: (fault: Status['faults'][number]) => readonly number[]
}

/** The column of hits on what the gateway asks servers by itself; it is left out while there are none. */
export function discoveryColumn(faults: Status['faults']): FaultColumn {
  return faults.every(({ discovery }) => discovery.hits === 0)
    ? { head: [], cells: () => [] }
    : { head: ['DISCOVERY'], cells: ({ discovery }) => [discovery.hits] }
}

/** How what a command prints gets its colours. */
export const paintOf = ({ out }: Pick<Given, 'out'>): Paint => out.paint ?? plain

/**
 * Asks the gateway, and shows its answer: as it is with `--json`, else as `show` says it in lines. Resolves to 1 when the
 * gateway refuses, or `failure` says in words that its answer is not what was asked for.
 */
export async function ask<Answer>(
  { control, values, out }: Given,
  request: { readonly method: 'GET' | 'POST'; readonly path: string; readonly body?: unknown },
  show: (answer: Answer) => readonly string[],
  failure: (answer: Answer) => string | undefined = () => undefined,
): Promise<number> {
  const answered = await control(request)
  if (!answered.ok) {
    out.stderr(`breakwater: ${answered.message}`)
    return 1
  }
  const answer = answered.value as Answer
  const why = failure(answer)
  if (values.json === true) out.stdout(JSON.stringify(answer, undefined, 2))
  else if (why === undefined) for (const line of show(answer)) out.stdout(printablePainted(line))
  if (why === undefined) return 0
  out.stderr(`breakwater: ${printable(why)}`)
  return 1
}
