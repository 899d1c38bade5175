import { z } from 'zod'
import type { FaultOptions, FaultType, OptionField, OptionValues } from '../../../chaos/fault.ts'
import { faults } from '../../../chaos/faults/index.ts'
import { isObject, parseJson } from '../../../protocol/jsonrpc.ts'
import { formatDuration } from '../../../units/duration.ts'
import { durationOf, Misuse, type Options } from '../../shared/arguments.ts'
import { ask, type Command, numberOf, textOf, type Values } from '../../shared/control-command.ts'

type Config = Readonly<Record<string, unknown>>

type OptionName = keyof OptionValues

/** The command-line spelling of each fault option. A fault type accepts only some of the options. */
const spelled: Readonly<Record<OptionName, string>> = {
  delay: 'delay',
  retryAfter: 'retry-after',
  status: 'status',
  fields: 'fields',
}

const names = Object.keys(spelled) as readonly OptionName[]

/** A fault type of mcp-chaos-monkey: its options, and the default fields that mcp-chaos-monkey uses (`usual`). */
interface MonkeyType {
  readonly options: FaultOptions
  readonly usual?: Config
  /** Name of a field that must be given, because the fault has no effect without it. */
  readonly needs?: string
}

const delay = (sets: string): FaultOptions => ({ delay: { sets } })

const monkey: Readonly<Record<string, MonkeyType>> = {
  latency: { options: delay('delayMs'), usual: { delayMs: 1_000 } },
  error: { options: { status: { sets: 'statusCode' } }, usual: { statusCode: 503 } },
  timeout: { options: delay('hangMs'), usual: { hangMs: 1_000 } },
  malformed: { options: {} },
  'connection-refused': { options: {} },
  'connection-drop': { options: delay('afterMs') },
  'rate-limit': {
    options: { retryAfter: { sets: 'retryAfterSeconds', as: (ms) => Math.ceil(ms / 1_000) } },
    usual: { retryAfterSeconds: 60 },
  },
  'schema-mismatch': { options: { fields: { sets: 'missingFields' } }, needs: 'missingFields' },
}

/**
 * Returns true for a type of Breakwater. An unknown name with a dot counts too, as a typing error: types of
 * mcp-chaos-monkey have no dots.
 */
const isOurs = (type: string) => type.includes('.') || Object.hasOwn(faults, type)

const typeOf = (type: string) => (Object.hasOwn(faults, type) ? faults[type] : undefined)

function shapeOf({ schema }: FaultType<unknown>): Readonly<Record<string, z.ZodType>> {
  return schema instanceof z.ZodObject ? (schema as z.ZodObject<Record<string, z.ZodType>>).shape : {}
}

/**
 * Returns the options of a type of Breakwater: options with the name of a field, and options that the type declares.
 */
function ownOptions(type: FaultType<unknown>): FaultOptions {
  const shape = shapeOf(type)
  const alike = names.filter((name) => Object.hasOwn(shape, name)).map((name) => [name, { sets: name }])
  return { ...(Object.fromEntries(alike) as FaultOptions), ...type.options }
}

/** Returns the values of the given options. Throws `Misuse`. */
function given(values: Values, bare: 'ms' | 's'): Partial<OptionValues> {
  const delay = textOf(values, 'delay')
  const retryAfter = textOf(values, 'retry-after')
  const status = numberOf(values, 'status')
  const fields = textOf(values, 'fields')
  return {
    // A plain number for --delay is milliseconds in both formats; mcp-chaos-monkey has its other times in seconds.
    ...(delay === undefined ? {} : { delay: durationOf('delay', delay) }),
    ...(retryAfter === undefined ? {} : { retryAfter: durationOf('retry-after', retryAfter, { bare }) }),
    ...(status === undefined ? {} : { status }),
    ...(fields === undefined ? {} : { fields: fields.split(',').filter((field) => field !== '') }),
  }
}

/** Returns the fields set by options. Throws `Misuse` for an option unknown to the type. */
function fieldsOf(type: string, options: FaultOptions, values: Partial<OptionValues>): Config {
  const set = Object.entries(values).map(([name, value]) => {
    const field = options[name as OptionName] as OptionField<unknown> | undefined
    if (field === undefined)
      throw new Misuse(`${type} takes no --${spelled[name as OptionName]}${instead(options)}`)
    return [field.sets, field.as?.(value) ?? value]
  })
  return Object.fromEntries(set) as Config
}

function instead(options: FaultOptions): string {
  const taken = names.filter((name) => options[name] !== undefined).map((name) => `--${spelled[name]}`)
  return taken.length === 0 ? '' : `, but ${taken.join(', ')}`
}

function optionFor(field: string, options: FaultOptions): string | undefined {
  const name = names.find((name) => options[name]?.sets === field)
  return name && `--${spelled[name]}`
}

/** Throws when a field without default is missing, and names its option. */
function demandAll(name: string, type: FaultType<unknown>, config: Config): void {
  for (const [field, schema] of Object.entries(shapeOf(type))) {
    if (field in config || schema.safeParse(undefined).success) continue
    const option = optionFor(field, ownOptions(type))
    const example = JSON.stringify({ [field]: type.example[field] })
    const ways = [...(option === undefined ? [] : [option]), `--config '${example}'`]
    throw new Misuse(`${name} needs "${field}": ${ways.join(', or ')}`)
  }
}

/** Returns the fault config described by the options. Throws `Misuse`. */
export function configOf(name: string, values: Values): Config {
  const rate = numberOf(values, 'rate')
  if (isOurs(name)) {
    const type = typeOf(name)
    const config = {
      ...(type && fieldsOf(name, ownOptions(type), given(values, 'ms'))),
      // A plan must state a rate. A fault injected by hand hits all calls by default.
      rate: rate ?? 1,
      ...extra(values),
    }
    if (type !== undefined) demandAll(name, type, config)
    return { type: name, ...config }
  }
  // Sends unknown types to the gateway as well, because its error message suggests a similar type.
  const type = Object.hasOwn(monkey, name) ? monkey[name] : undefined
  const config = {
    ...type?.usual,
    ...(type && fieldsOf(name, type.options, given(values, 's'))),
    ...(rate === undefined ? {} : { probability: rate }),
    ...extra(values),
  }
  const { needs } = type ?? {}
  if (type !== undefined && needs !== undefined && !(needs in config) && values.config === undefined)
    throw new Misuse(`${name} needs ${optionFor(needs, type.options)} A,B`)
  return { type: name, ...config }
}

function extra(values: Values): Config {
  const text = textOf(values, 'config')
  if (text === undefined) return {}
  const fields = parseJson(text)
  if (!isObject(fields)) throw new Misuse('--config must be a JSON object')
  return fields
}

interface Injected {
  readonly name: string
  /** The name of the type in plans, even if the user gave a type of mcp-chaos-monkey. */
  readonly type: string
  readonly durationMs: number
  readonly note?: string
  /** Warnings about parts of the fault that have no effect at present. */
  readonly warnings?: readonly string[]
}

/** The options of `breakwater chaos inject`, by their spelling on the command line. */
const options = {
  duration: { kind: 'text', value: 'DURATION', about: 'lifetime of the fault (default: 15m)' },
  rate: { kind: 'number', max: 1, value: 'RATE', about: 'share of the calls (default: 1)' },
  status: {
    kind: 'integer',
    min: 100,
    max: 599,
    value: 'CODE',
    about: 'for error, http.status, session.lost',
  },
  delay: {
    kind: 'text',
    value: 'DURATION',
    about: 'for latency, timeout, connection-drop, conn.latency and other slow faults',
  },
  'retry-after': { kind: 'text', value: 'DURATION', about: 'for rate-limit, limit.429' },
  fields: { kind: 'text', value: 'A,B', about: 'of schema-mismatch' },
  config: { kind: 'text', value: 'JSON', about: 'further fields of the fault' },
  'allow-writes': { kind: 'flag', about: 'hits tools not known to be read-only, too' },
} as const satisfies Options

const SPARED = 'only tools known to be read-only are hit; --allow-writes hits all tools'

/** Matches the warning about an empty tool list. The warning makes the note about spared tools superfluous. */
const SPARES_ALL = /^allowWrites: (hits no tool call: .*)$/
const WAYS_OUT =
  'give --allow-writes, or set "trusted: true" for the server or "effect: read_only" for the tool'

/** Returns the notes and warnings about an injection. The texts name the options of this command. */
function notesOn({ note, warnings = [] }: Injected): readonly string[] {
  const sparesAll = warnings.some((warning) => SPARES_ALL.test(warning))
  const told = warnings.map((warning) => warning.replace(SPARES_ALL, `$1; ${WAYS_OUT}`))
  return note === undefined || sparesAll ? told : [SPARED, ...told]
}

export const inject: Command = {
  positionals: ['TARGET', 'TYPE'],
  options,
  run(args) {
    const { values, positionals } = args
    const [target = '', type = ''] = positionals
    const duration = textOf(values, 'duration')
    const bare = isOurs(type) ? 'ms' : 's'
    const body = {
      target,
      config: configOf(type, values),
      ...(duration === undefined ? {} : { durationMs: durationOf('duration', duration, { min: 1, bare }) }),
      ...(values['allow-writes'] === true ? { allowWrites: true } : {}),
    }
    return ask(args, { method: 'POST', path: '/chaos/inject', body }, (injected: Injected) => [
      `${injected.name}: ${injected.type} at ${target} for ${formatDuration(injected.durationMs)}`,
      ...notesOn(injected).map((line) => `  ${line}`),
    ])
  },
}
