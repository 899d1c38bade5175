import { parseArgs } from 'node:util'
import type { Paint } from '../../telemetry/colours.ts'
import { duration } from '../../units/duration.ts'
import { didYouMean, suggest } from '../../units/suggest.ts'
import { DEFAULT_CONTROL } from '../../gateway/control-address.ts'

/** A status line, or several; undefined: none. */
export type StatusText = string | readonly string[] | undefined

/** The output of a command, written line by line. */
export interface Output {
  stdout(line: string): void
  stderr(line: string): void
  /** True once standard output has no reader any more. Endless commands end then. */
  readonly isClosed?: boolean
  /** Characters per line of standard output, on a terminal. */
  readonly width?: number | undefined
  /** Colours standard output. Default: no colours. */
  readonly paint?: Paint
  /** Lines of the window, on a terminal. Status lines beyond are not shown. */
  readonly height?: number
  /**
   * Shows status lines below all written lines, and replaces the previous status lines; undefined removes these. Absent
   * unless standard error is a terminal.
   */
  readonly status?: ((lines: StatusText) => void) | undefined
  /** Replaces the screen by lines. Absent unless standard output is a terminal. */
  readonly page?: ((lines: readonly string[]) => void) | undefined
}

interface Described {
  /** Description of the option in the usage, one line, without the default. */
  readonly about: string
}

interface Valued extends Described {
  /** Placeholder of the value in the usage, such as FILE. */
  readonly value: string
  /** The default, as written by a user. */
  readonly default?: string
}

export type Option =
  | (Described & { readonly kind: 'flag' })
  | (Valued & { readonly kind: 'text' | 'url' })
  /** An option that may be given several times. */
  | (Described & { readonly kind: 'list'; readonly value: string })
  | (Valued & { readonly kind: 'choice'; readonly of: readonly string[] })
  /** A number from `min` (default 0) to `max` (default for whole numbers: 2^52, so sums are exact). */
  | (Valued & { readonly kind: 'number' | 'integer'; readonly min?: number; readonly max?: number })
  /** A duration; `min` and `max` (default: 24 days) are in milliseconds. */
  | (Valued & { readonly kind: 'duration'; readonly min?: number; readonly max?: number })

/** Options by name, without the dashes. Does not contain `help`, which every command has. */
export type Options = Readonly<Record<string, Option>>

interface Kinds {
  flag: boolean
  text: string
  url: string
  list: readonly string[]
  choice: string
  number: number
  integer: number
  duration: number
}

/** Absent flags are false and absent lists empty; durations are in milliseconds. */
export type Values<Given extends Options> = {
  readonly [Name in keyof Given]: Given[Name] extends
    { readonly kind: 'flag' | 'list' } | { readonly default: string }
    ? Kinds[Given[Name]['kind']]
    : Kinds[Given[Name]['kind']] | undefined
}

export class Misuse extends Error {}

/** Thrown when the command cannot do its task. The message gives the reasons, one per line. */
export class UnusableInput extends Error {
  readonly exitCode: 1 | 2

  constructor(message: string, exitCode: 1 | 2 = 1) {
    super(message)
    this.exitCode = exitCode
  }
}

/** Throws an error's message as an `UnusableInput`. */
export function unusable({ message }: Error): never {
  throw new UnusableInput(message)
}

interface Expected<Given extends Options> {
  readonly options: Given
  /** Names of the positionals, optional ones in brackets. Undefined: any positionals, checked by the caller. */
  readonly positionals?: readonly string[]
}

type Read<Given extends Options> =
  | { readonly help: true }
  | { readonly help: false; readonly values: Values<Given>; readonly positionals: readonly string[] }

/** Reads the arguments of a command; everything after `--` is positional. Throws `Misuse`. */
export function readArguments<const Given extends Options>(
  args: readonly string[],
  { options, positionals: names }: Expected<Given>,
): Read<Given> {
  const known = Object.entries(options).map(
    ([name, { kind }]) => [name, { type: kind === 'flag' ? 'boolean' : 'string' }] as const,
  )
  const { tokens, positionals } = parseArgs({
    args: [...args],
    options: { ...Object.fromEntries(known), help: { type: 'boolean', short: 'h' } },
    allowPositionals: true,
    // `parseArgs` must not throw, because the code below reports wrong arguments in its own words.
    strict: false,
    tokens: true,
  })
  const texts = new Map<string, string[]>()
  for (const token of tokens) {
    if (token.kind !== 'option') continue
    const { name, rawName, value, inlineValue } = token
    const option = Object.hasOwn(options, name) ? options[name] : undefined
    if (option === undefined && name !== 'help')
      throw new Misuse(unknownOption(rawName, [...Object.keys(options), 'help']))
    if (option === undefined || option.kind === 'flag') {
      if (value !== undefined) throw new Misuse(`${rawName} takes no value`)
      texts.set(name, [])
    } else {
      if (value === undefined) throw new Misuse(`${rawName} needs a value: ${option.value}`)
      // The message omits the value, because it may be a token.
      if (!inlineValue && value.length > 1 && value.startsWith('-'))
        throw new Misuse(
          `${rawName} needs a value; write a value beginning with - as ${rawName}=${option.value}`,
        )
      texts.set(name, [...(texts.get(name) ?? []), value])
    }
  }
  if (texts.has('help')) return { help: true }
  const missing = names?.[positionals.length]
  const strange = names && positionals[names.length]
  if (missing?.startsWith('[') === false) throw new Misuse(`${missing} is missing`)
  if (strange !== undefined) throw new Misuse(`unexpected argument "${strange}"`)
  const values = Object.entries(options).map(([name, option]) => [
    name,
    valueOf(name, option, texts.get(name)),
  ])
  return { help: false, values: Object.fromEntries(values) as Values<Given>, positionals }
}

export function unknownCommand(name: string, names: readonly string[]): string {
  if (name === '') return `which command: ${names.join(', ')}?`
  if (name.startsWith('-')) return 'the command comes first, its options follow'
  return `unknown command "${name}"${didYouMean(name, names)}`
}

/** Returns the message for an unknown option, by its name with the dashes. */
export function unknownOption(rawName: string, names: readonly string[]): string {
  const meant = suggest(rawName.replace(/^-+|=.*$/g, ''), names)
  return `unknown option ${rawName}${meant === undefined ? '' : `; did you mean --${meant}?`}`
}

/** A number with or without exponent; excludes other notations accepted by `Number`. */
const DECIMAL = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/

function valueOf(name: string, option: Option, texts: readonly string[] | undefined): unknown {
  if (option.kind === 'flag') return texts !== undefined
  if (option.kind === 'list') return texts ?? []
  const text = texts?.at(-1) ?? option.default
  if (text === undefined) return undefined
  const refused = (what: string) => new Misuse(`--${name} must be ${what}, not "${text}"`)
  switch (option.kind) {
    case 'text':
      return text
    case 'url':
      if (/^https?:\/\/[^/]/.test(text) && URL.canParse(text)) return text
      throw refused(`a URL such as ${option.default ?? 'http://127.0.0.1:8080'}`)
    case 'choice':
      if (option.of.includes(text)) return text
      throw refused(`one of ${option.of.join(', ')}`)
    case 'integer':
    case 'number': {
      const { kind, min = 0, max = kind === 'integer' ? 2 ** 52 : Infinity } = option
      const given = DECIMAL.test(text) ? Number(text) : NaN
      const isOne = kind === 'integer' ? Number.isInteger(given) : Number.isFinite(given)
      if (isOne && given >= min && given <= max) return given
      const noun = kind === 'integer' ? 'a whole number' : 'a number'
      throw refused(max < 2 ** 52 ? `${noun} from ${min} to ${max}` : given < min ? `at least ${min}` : noun)
    }
    case 'duration':
      return durationOf(name, text, option)
  }
}

/** Reads a duration, in milliseconds. `bare`: the unit of a plain number. Throws `Misuse`. */
export function durationOf(
  name: string,
  text: string,
  {
    min = 0,
    max,
    bare = 'ms',
  }: { readonly min?: number; readonly max?: number; readonly bare?: 'ms' | 's' } = {},
): number {
  const limits = max === undefined ? { min } : { min, max }
  const read = duration(limits).safeParse(/^\d+(\.\d+)?$/.test(text) ? `${text}${bare}` : text)
  if (read.success) return read.data
  throw new Misuse(`--${name}: ${read.error.issues[0]?.message}, not "${text}"`)
}

/** Column of the options' descriptions. */
const ABOUT_AT = 26

/** An option as listed in a usage. */
export interface ListedOption {
  readonly name: string
  readonly option: Option
  /** Text in brackets after the description, such as the commands that have the option. */
  readonly tag?: string
}

/** Returns options as entries for a usage. */
export const listed = (options: Options): readonly ListedOption[] =>
  Object.entries(options).map(([name, option]) => ({ name, option }))

/** Returns the options that only some commands have, each with the names of these commands. */
export function optionsOf(
  commands: Readonly<Record<string, { readonly options?: Options }>>,
): readonly ListedOption[] {
  const byMeaning = new Map<string, ListedOption & { readonly tag: string }>()
  for (const [command, { options = {} }] of Object.entries(commands))
    for (const { name, option } of listed(options)) {
      const meaning = `${name} ${option.about}`
      const tag = byMeaning.get(meaning)?.tag
      byMeaning.set(meaning, { name, option, tag: tag === undefined ? command : `${tag}, ${command}` })
    }
  return [...byMeaning.values()]
}

const isList = (options: Options | readonly ListedOption[]): options is readonly ListedOption[] =>
  Array.isArray(options)

const HELP: ListedOption = { name: 'help', option: { kind: 'flag', about: 'this text' } }

/** Returns the usage's lines on options, with `--help`. */
export function optionLines(options: Options | readonly ListedOption[]): string {
  const all = [...(isList(options) ? options : listed(options)), HELP]
  const lines = all.map(({ name, option, tag }) => {
    const written = `  --${name}${'value' in option ? ` ${option.value}` : ''}`
    const usual = 'default' in option ? ` (default: ${option.default})` : ''
    return { text: `${written.padEnd(ABOUT_AT - 1)} ${option.about}${usual}`, tag }
  })
  const tagAt = Math.max(...lines.map(({ text, tag }) => (tag === undefined ? 0 : text.length))) + 2
  return lines.map(({ text, tag }) => (tag === undefined ? text : `${text.padEnd(tagAt)}[${tag}]`)).join('\n')
}

interface CommandLine<Given extends Options> extends Expected<Given> {
  /** The text for `--help`; it begins with the command, such as `breakwater chaos`. */
  readonly usage: string
}

function misused({ message }: Misuse, usage: string): string {
  const [command] = /^breakwater(?: [a-z][a-z-]*)?/.exec(usage) ?? ['breakwater']
  return `${command}: ${message}\n\nHow it is used: ${command} --help`
}

/**
 * Runs a command with its arguments, or prints its usage on request (exit code 0). Reports wrong arguments (exit code
 * 2), also a `Misuse` thrown by `run`, and an `UnusableInput` with its own exit code. Resolves to the exit code.
 */
export async function runCommand<const Given extends Options>(
  args: readonly string[],
  { usage, ...expected }: CommandLine<Given>,
  out: Output,
  run: (values: Values<Given>, positionals: readonly string[]) => Promise<number>,
): Promise<number> {
  try {
    const read = readArguments(args, expected)
    if (!read.help) return await run(read.values, read.positionals)
    out.stdout(usage)
    return 0
  } catch (error) {
    if (error instanceof UnusableInput) {
      for (const line of error.message.split('\n')) out.stderr(`breakwater: ${line}`)
      return error.exitCode
    }
    if (!(error instanceof Misuse)) throw error
    out.stderr(misused(error, usage))
    return 2
  }
}

export const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const

export const seeded = (about: string) =>
  ({
    kind: 'integer',
    max: Number.MAX_SAFE_INTEGER,
    value: 'SEED',
    default: '42',
    about,
  }) as const

export const control = {
  control: { kind: 'url', value: 'URL', default: DEFAULT_CONTROL, about: 'the control port' },
} as const

export const controlAccess = {
  ...control,
  token: {
    kind: 'text',
    value: 'TOKEN',
    about: 'the control token (default: BREAKWATER_TOKEN, or the token file of the running gateway)',
  },
} as const

export const wrapping = {
  plan: {
    kind: 'text',
    value: 'FILE',
    about: 'faults: a plan, a block "chaos", or a plan of mcp-chaos or mcp-chaos-monkey',
  },
  strict: { kind: 'flag', about: 'calls fail when the fault engine fails' },
  'log-level': {
    kind: 'choice',
    of: logLevels,
    value: 'LEVEL',
    default: 'warn',
    about: 'trace, debug, info, warn, error, fatal or silent; on standard error',
  },
} as const
