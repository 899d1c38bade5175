import type { Status } from '../../chaos/control/status.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { commandAt } from '../../gateway/control-address.ts'
import { controlAccess, Misuse, type Options, type Output, runCommand, unknownCommand } from './arguments.ts'
import { type Control, controlAt } from './control.ts'
import { type Paint, plain, type Tone } from '../../telemetry/colours.ts'
import { printable, printablePainted } from '../../telemetry/printable.ts'

export type Values = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>

/** The input of a command: its options and positionals, the gateway, and the output. */
export interface Given {
  readonly values: Values
  /** The positional arguments, in the order of the command's `positionals`. */
  readonly positionals: readonly string[]
  readonly control: Control
  readonly out: Output
  readonly env: Env
  /** Characters per line of the terminal. */
  readonly width: number
}

export interface Command {
  /** Names of the positionals, optional ones in brackets. */
  readonly positionals?: readonly string[]
  /** Options that the command has in addition to the common options. */
  readonly options?: Options
  /** Resolves to the exit code: 0, or 1 on failure. Throws `Misuse`. */
  run(given: Given): Promise<number>
}

/** Options of all commands against a running gateway. */
export const common = { ...controlAccess, json: { kind: 'flag', about: 'the answer as JSON' } } as const

/**
 * Runs the command named by the first argument. `others`: commands that need no gateway, for suggestions. Resolves to
 * the exit code; 2 for wrong arguments.
 */
export function runNamed(
  [name = '', ...rest]: readonly string[],
  {
    usage,
    commands,
    others = [],
  }: {
    readonly usage: string
    readonly commands: Readonly<Record<string, Command>>
    readonly others?: readonly string[]
  },
  out: Output,
  env: Env,
  width = out.width ?? Infinity,
): Promise<number> {
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  const own = ['help', '--help', '-h'].includes(name) ? ['--help'] : command === undefined ? [] : rest
  const { options, positionals = [] } = command ?? {}
  const expected = { usage, options: { ...common, ...options }, positionals }
  return runCommand(own, expected, out, async (values, positionals) => {
    if (command === undefined) throw new Misuse(unknownCommand(name, [...Object.keys(commands), ...others]))
    const control = controlAt({ base: values.control, token: values.token, env })
    return command.run({ values, positionals, control, out, env, width })
  })
}

/** Returns an option's text; undefined without the option. */
export function textOf(values: Values, name: string): string | undefined {
  const value = values[name]
  return typeof value === 'string' ? value : undefined
}

/** Returns a command for the same gateway as this command's. */
export const commandFor = ({ values }: Pick<Given, 'values'>, command: string): string =>
  commandAt(command, textOf(values, 'control'))

/** Returns an option's number; undefined without the option. */
export function numberOf(values: Values, name: string): number | undefined {
  const value = values[name]
  return typeof value === 'number' ? value : undefined
}

/** Colours for the states of the chaos mesh. */
export const stateTones: Readonly<Record<Status['state'], Tone>> = {
  disarmed: 'good',
  armed: 'doubtful',
  killed: 'bad',
}

/** Returns a sentence for each fault that spares calls of a server because the server's tool list is still unknown. */
export const awaitedLists = (faults: Status['faults']): string[] =>
  faults.flatMap(({ name, awaitedLists: servers }) =>
    servers.map((server) =>
      printable(`${name} spares calls of ${server}, because the list of ${server} is not known`),
    ),
  )

interface FaultColumn {
  readonly head: readonly string[]
  readonly cells: (fault: Status['faults'][number]) => readonly number[]
}

/** Returns the column of hits on the gateway's own requests; omitted without such hits. */
export function discoveryColumn(faults: Status['faults']): FaultColumn {
  return faults.every(({ discovery }) => discovery.hits === 0)
    ? { head: [], cells: () => [] }
    : { head: ['DISCOVERY'], cells: ({ discovery }) => [discovery.hits] }
}

export const paintOf = ({ out }: Pick<Given, 'out'>): Paint => out.paint ?? plain

/**
 * Asks the gateway, and prints the answer: unchanged with `--json`, else as lines from `show`. Resolves to 1 when the
 * gateway refuses, or when `failure` returns a message.
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
