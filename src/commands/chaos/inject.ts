import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { formatDuration } from '../../units/duration.ts'
import { ask, Misuse, numberOf, textOf, type Command, type Values } from './command.ts'

type Config = Readonly<Record<string, unknown>>

/** Options as the fault configs of mcp-chaos-monkey have them, with the defaults of its command. */
const monkey: Readonly<Record<string, (values: Values) => Config>> = {
  latency: (values) => ({ delayMs: numberOf(values, 'delay') ?? 1_000 }),
  error: (values) => ({ statusCode: numberOf(values, 'status') ?? 503 }),
  timeout: (values) => ({ hangMs: numberOf(values, 'delay') ?? 1_000 }),
  'connection-drop': (values) => given('afterMs', numberOf(values, 'delay')),
  'rate-limit': (values) => ({ retryAfterSeconds: numberOf(values, 'retry-after') ?? 60 }),
  'schema-mismatch': (values) => ({ missingFields: fieldsOf(values) }),
}

/** Options as faults of a plan have them. */
const own: Readonly<Record<string, (values: Values) => Config>> = {
  'conn.latency': (values) => ({
    distribution: { kind: 'fixed', delay: numberOf(values, 'delay') ?? 1_000 },
  }),
  'conn.half_open': (values) => given('hold', numberOf(values, 'delay')),
  'http.status': (values) => given('status', numberOf(values, 'status')),
  'limit.429': (values) => given('retryAfter', inMs(numberOf(values, 'retry-after'))),
}

/** The fault config that the options describe. */
export function configOf(type: string, values: Values): Config {
  const isOwn = type.includes('.')
  const shaped = (isOwn ? own : monkey)[type]?.(values) ?? {}
  const rate = numberOf(values, 'rate')
  // A fault of a plan has to say its rate: whoever injects one by hand means all calls.
  const share = isOwn ? { rate: rate ?? 1 } : given('probability', rate)
  return { type, ...shaped, ...share, ...extra(values) }
}

function extra(values: Values): Config {
  const text = textOf(values, 'config')
  if (text === undefined) return {}
  const fields = parseJson(text)
  if (!isObject(fields)) throw new Misuse('--config must be a JSON object')
  return fields
}

const given = (key: string, value: unknown): Config => (value === undefined ? {} : { [key]: value })

const inMs = (seconds: number | undefined) => (seconds === undefined ? undefined : seconds * 1_000)

function fieldsOf(values: Values): string[] {
  const fields = (textOf(values, 'fields') ?? '').split(',').filter((field) => field !== '')
  if (fields.length === 0) throw new Misuse('schema-mismatch needs --fields a,b')
  return fields
}

interface Injected {
  readonly faultId: string
  readonly durationMs: number
}

export const inject: Command = {
  positionals: ['TARGET', 'TYPE'],
  options: {
    status: { type: 'string' },
    delay: { type: 'string' },
    duration: { type: 'string' },
    'retry-after': { type: 'string' },
    fields: { type: 'string' },
    rate: { type: 'string' },
    config: { type: 'string' },
    'allow-writes': { type: 'boolean' },
  },
  run(args) {
    const { values, positionals } = args
    const [target = '', type = ''] = positionals
    const durationMs = inMs(numberOf(values, 'duration'))
    const body = {
      target,
      config: configOf(type, values),
      ...given('durationMs', durationMs),
      ...(values['allow-writes'] === true ? { allowWrites: true } : {}),
    }
    return ask(args, { method: 'POST', path: '/chaos/inject', body }, (injected: Injected) => [
      `${injected.faultId}: ${type} at ${target} for ${formatDuration(injected.durationMs)}`,
    ])
  },
}

export const clear: Command = {
  positionals: ['ID'],
  run: (args) =>
    ask(args, { method: 'POST', path: '/chaos/clear', body: { faultId: args.positionals[0] } }, () => [
      `cleared ${args.positionals[0]}`,
    ]),
}

export const clearAll: Command = {
  run: (args) =>
    ask(args, { method: 'POST', path: '/chaos/clear-all' }, ({ count }: { readonly count: number }) => [
      count === 1 ? 'cleared 1 fault' : `cleared ${count} faults`,
    ]),
}
