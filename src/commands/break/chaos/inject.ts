import { z } from 'zod'
import type { FaultOptions, FaultType, OptionField, OptionValues } from '../../../chaos/fault.ts'
import { faults } from '../../../chaos/faults/index.ts'
import { isObject, parseJson } from '../../../protocol/jsonrpc.ts'
import { formatDuration } from '../../../units/duration.ts'
import { durationOf, Misuse, type Options } from '../../shared/arguments.ts'
import { ask, type Command, numberOf, textOf, type Values } from '../../shared/control-command.ts'

type Config = Readonly<Record<string, unknown>>

type OptionName = keyof OptionValues

/** The options that say what a fault is, as somebody writes them; each type takes some. */
const spelled: Readonly<Record<OptionName, string>> = {
  delay: 'delay',
  retryAfter: 'retry-after',
  status: 'status',
  fields: 'fields',
}

const names = Object.keys(spelled) as readonly OptionName[]

/** A type of mcp-chaos-monkey: what its options set, and what they are unless they are given, as its command has it. */
interface MonkeyType {
  readonly options: FaultOptions
  readonly usual?: Config
  /** The field without which the fault does nothing. */
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

/** A type of ours with a dot that there is not is one that was mistyped: the other format has none. */
const isOurs = (type: string) => type.includes('.') || Object.hasOwn(faults, type)

const typeOf = (type: string) => (Object.hasOwn(faults, type) ? faults[type] : undefined)

function shapeOf({ schema }: FaultType<unknown>): Readonly<Record<string, z.ZodType>> {
  return schema instanceof z.ZodObject ? (schema as z.ZodObject<Record<string, z.ZodType>>).shape : {}
}

/** The options of a type of ours: those that are called like one of its fields, and those that it names. */
function ownOptions(type: FaultType<unknown>): FaultOptions {
  const shape = shapeOf(type)
  const alike = names.filter((name) => Object.hasOwn(shape, name)).map((name) => [name, { sets: name }])
  return { ...(Object.fromEntries(alike) as FaultOptions), ...type.options }
}

/** The values of the options that are given. Throws `Misuse`. */
function given(values: Values, bare: 'ms' | 's'): Partial<OptionValues> {
  const delay = textOf(values, 'delay')
  const retryAfter = textOf(values, 'retry-after')
  const status = numberOf(values, 'status')
  const fields = textOf(values, 'fields')
  return {
    // Milliseconds in both: there it is the one time that is not in seconds.
    ...(delay === undefined ? {} : { delay: durationOf('delay', delay) }),
    ...(retryAfter === undefined ? {} : { retryAfter: durationOf('retry-after', retryAfter, { bare }) }),
    ...(status === undefined ? {} : { status }),
    ...(fields === undefined ? {} : { fields: fields.split(',').filter((field) => field !== '') }),
  }
}

/** The fields that options set. Throws `Misuse` when there is one that the type does not take. */
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

/** The option that sets a field. */
function optionFor(field: string, options: FaultOptions): string | undefined {
  const name = names.find((name) => options[name]?.sets === field)
  return name && `--${spelled[name]}`
}

/** Says which field is missing that has no default, and how it is given. */
function demandAll(name: string, type: FaultType<unknown>, config: Config): void {
  for (const [field, schema] of Object.entries(shapeOf(type))) {
    if (field in config || schema.safeParse(undefined).success) continue
    const option = optionFor(field, ownOptions(type))
    const example = JSON.stringify({ [field]: type.example[field] })
    const ways = [...(option === undefined ? [] : [option]), `--config '${example}'`]
    throw new Misuse(`${name} needs "${field}": ${ways.join(', or ')}`)
  }
}

/** The fault config that the options describe. Throws `Misuse`. */
export function configOf(name: string, values: Values): Config {
  const rate = numberOf(values, 'rate')
  if (isOurs(name)) {
    const type = typeOf(name)
    const config = {
      ...(type && fieldsOf(name, ownOptions(type), given(values, 'ms'))),
      // A fault of a plan has to say its rate: whoever injects one by hand means all calls.
      rate: rate ?? 1,
      ...extra(values),
    }
    if (type !== undefined) demandAll(name, type, config)
    return { type: name, ...config }
  }
  // An unknown type is passed on: the gateway knows best which type was meant.
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
  /** As a plan has it, also where the command line named a type of mcp-chaos-monkey. */
  readonly type: string
  readonly durationMs: number
  /** A further remark of the gateway. */
  readonly note?: string
  /** Parts of it that do nothing as things are. */
  readonly warnings?: readonly string[]
}

/** The options that say it, in the words of the usage. */
const options = {
  duration: { kind: 'text', value: 'DURATION', about: 'how long it stays (default: 15m)' },
  rate: { kind: 'number', max: 1, value: 'RATE', about: 'share of the calls (default: 1)' },
  status: {
    kind: 'integer',
    min: 100,
    max: 599,
    value: 'CODE',
    about: 'of error, http.status, session.lost',
  },
  delay: {
    kind: 'text',
    value: 'DURATION',
    about: 'of latency, timeout, connection-drop, conn.latency and others that take time',
  },
  'retry-after': { kind: 'text', value: 'DURATION', about: 'of rate-limit, limit.429' },
  fields: { kind: 'text', value: 'A,B', about: 'of schema-mismatch' },
  config: { kind: 'text', value: 'JSON', about: 'further fields of the fault' },
  'allow-writes': { kind: 'flag', about: 'also tools not known to be read-only' },
} as const satisfies Options

const SPARED = 'tools that are not known to be read-only are left out; --allow-writes hits them too'

/** Matches the warning that no tool is left. The warning makes the note about spared tools superfluous. */
const SPARES_ALL = /^allowWrites: (hits no tool call: .*)$/
const WAYS_OUT =
  'give --allow-writes, or set "trusted: true" for the server or "effect: read_only" for the tool'

/** Returns notes and warnings about an injection, in words of this command's options. */
function notesOn({ note, warnings = [] }: Injected): readonly string[] {
  const sparesAll = warnings.some((warning) => SPARES_ALL.test(warning))
  const told = warnings.map((warning) => warning.replace(SPARES_ALL, `$1; ${WAYS_OUT}`))
  return note === undefined || sparesAll ? told : [SPARED, ...told]
}

/** `inject TARGET TYPE`: one fault, for a time. */
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
