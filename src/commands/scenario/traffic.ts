import type { Cancellation } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { glob } from '../../mesh/match.ts'
import { implementation } from '../../protocol/identity.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import {
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  encodeHeaderValue,
  MODERN_VERSION,
  PROTOCOL_VERSION_KEY,
} from '../../protocol/modern.ts'
import { INTENT_KEY } from '../../protocol/task.ts'

/** Most calls of one run, and most of them under way at a time: past it the next one waits. */
const MAX_CALLS = 10_000
const MAX_IN_FLIGHT = 64

/** Most bytes that are read of a reply. */
const MAX_REPLY = 8 * 1024 ** 2

/** How long the gateway may take to list tools, in milliseconds. */
const PATIENCE_MS: Millis = 10_000

/** Most kinds of endings that are told apart. */
const MAX_WORDS = 50

export interface TrafficOptions {
  /** URL of the gateway's data plane. */
  readonly data: string
  /** Calls a second. */
  readonly rate: number
  /** Tools to call, as a glob; undefined: those that say of themselves that they only read. */
  readonly tool: string | undefined
  /** Begins the names of the tasks that calls belong to: the same calls have the same ones in every run. */
  readonly name: string
}

/** One tool of one server, with arguments that fit its schema. */
interface Target {
  readonly server: string
  readonly tool: string
  readonly args: unknown
}

/** What became of the calls of a run: how many there were, and how many ended with each word. */
export interface TrafficReport {
  readonly calls: number
  readonly endings: Readonly<Record<string, number>>
}

/** No traffic can be made; the message says what to do about it. */
export class TrafficError extends Error {}

/**
 * Calls tools over the gateway's own data plane, one after the other at a steady rate, as an agent of the modern era
 * does. Call `n` is the same in every run: its tool, its arguments and its task depend on nothing else.
 */
export class Traffic {
  readonly #options: TrafficOptions
  readonly #clock: Clock
  readonly #targets: readonly Target[]
  readonly #endings = new Map<string, number>()
  readonly #underWay = new Set<Promise<void>>()
  #calls = 0

  private constructor(options: TrafficOptions, clock: Clock, targets: readonly Target[]) {
    this.#options = options
    this.#clock = clock
    this.#targets = targets
  }

  /** Finds out what there is to be called at these servers. Rejects with a `TrafficError` when there is nothing. */
  static async to(servers: readonly string[], options: TrafficOptions, clock: Clock): Promise<Traffic> {
    const found = await Promise.all(servers.map((server) => targetsAt(server, options, clock)))
    const targets = found.flat()
    if (targets.length > 0) return new Traffic(options, clock, targets)
    const what =
      options.tool === undefined ? 'says that it only reads (readOnlyHint)' : `is called ${options.tool}`
    const where =
      servers.length === 0 ? 'there is no such server' : `no tool of ${servers.join(', ')} ${what}`
    throw new TrafficError(`no traffic can be made: ${where}; --tool GLOB names tools that may be called`)
  }

  get report(): TrafficReport {
    return { calls: this.#calls, endings: Object.fromEntries(this.#endings) }
  }

  /** Makes calls until `stop` aborts, which gives up those that are under way. Never rejects. */
  async run(stop: Cancellation): Promise<void> {
    const abort = new AbortController()
    stop.addEventListener('abort', () => abort.abort())
    const startedAt = this.#clock.now()
    while (!stop.aborted && this.#calls < MAX_CALLS) {
      const dueMs = startedAt + (this.#calls * 1_000) / this.#options.rate - this.#clock.now()
      if (dueMs > 0) await this.#clock.sleep(dueMs, stop).catch(() => undefined)
      if (this.#underWay.size >= MAX_IN_FLIGHT) await Promise.race(this.#underWay)
      if (stop.aborted) break
      const call = this.#call(this.#calls++, abort.signal).finally(() => this.#underWay.delete(call))
      this.#underWay.add(call)
    }
    await Promise.all(this.#underWay)
  }

  async #call(index: number, signal: AbortSignal): Promise<void> {
    const target = this.#targets[index % this.#targets.length]
    if (target === undefined) return
    const { data, name } = this.#options
    const params = { name: target.tool, arguments: target.args }
    const meta = { [INTENT_KEY]: `${name}-${index}` }
    const word = await askModern(`${data}/mcp/${target.server}`, 'tools/call', params, meta, signal).then(
      endingOf,
      () => (signal.aborted ? 'given up at the end' : 'connection broken'),
    )
    const known = this.#endings.has(word) || this.#endings.size < MAX_WORDS ? word : 'other'
    this.#endings.set(known, (this.#endings.get(known) ?? 0) + 1)
  }
}

/** In a few words, how a call ended. */
function endingOf(reply: unknown): string {
  if (!isObject(reply)) return 'no JSON'
  const { result, error } = reply
  if (isObject(result)) return result.isError === true ? 'tool error' : 'result'
  if (!isObject(error)) return 'no response'
  const code = isObject(error.data) ? error.data.code : undefined
  return typeof code === 'string' ? code.slice(0, 64) : `error ${String(error.code).slice(0, 16)}`
}

async function targetsAt(server: string, { data, tool }: TrafficOptions, clock: Clock): Promise<Target[]> {
  const patience = new AbortController()
  const cancel = clock.after(PATIENCE_MS, () => patience.abort())
  try {
    const reply = await askModern(`${data}/mcp/${server}`, 'tools/list', {}, {}, patience.signal)
    const result = isObject(reply) ? reply.result : undefined
    const tools: unknown[] = isObject(result) && Array.isArray(result.tools) ? result.tools : []
    const isMeant = tool === undefined ? onlyReads : named(tool)
    return tools.filter(isObject).flatMap((entry) => {
      if (typeof entry.name !== 'string' || !isMeant(entry)) return []
      return { server, tool: entry.name, args: exampleOf(entry.inputSchema) ?? {} }
    })
  } catch (error) {
    throw new TrafficError(`no tools of ${server} can be listed at ${data}: ${(error as Error).message}`)
  } finally {
    cancel()
  }
}

type Entry = Readonly<Record<string, unknown>>

const onlyReads = ({ annotations }: Entry): boolean =>
  isObject(annotations) && annotations.readOnlyHint === true

function named(pattern: string): (entry: Entry) => boolean {
  const isOne = glob(pattern)
  return ({ name }) => isOne(String(name))
}

/** Deepest nesting of arguments that are made up. */
const MAX_DEPTH = 8

/** The simplest value that a schema allows for, as far as its own members tell: of objects what they require. */
function exampleOf(schema: unknown, depth = 0): unknown {
  if (!isObject(schema) || depth > MAX_DEPTH) return {}
  const { default: usual, const: only, enum: choices, examples, type, properties, required } = schema
  const given = usual ?? only ?? first(choices) ?? first(examples)
  if (given !== undefined) return given
  switch (first(type) ?? type) {
    case 'string':
      return 'example'.padEnd(Math.min(Number(schema.minLength ?? 0), 1_000), '-')
    case 'integer':
    case 'number':
      return typeof schema.minimum === 'number' ? schema.minimum : 1
    case 'boolean':
      return false
    case 'array':
      return Array.from({ length: Math.min(Number(schema.minItems ?? 0), 10) }, () =>
        exampleOf(schema.items, depth + 1),
      )
    case 'null':
      return null
  }
  const members = isObject(properties) ? properties : {}
  const wanted = Array.isArray(required) ? required.map(String) : []
  return Object.fromEntries(wanted.map((key) => [key, exampleOf(members[key], depth + 1)]))
}

const first = (list: unknown): unknown => (Array.isArray(list) ? list[0] : undefined)

/** Sends one request of the modern era, and reads its response; rejects when there is no connection, or no end. */
export async function askModern(
  url: string,
  method: string,
  params: Readonly<Record<string, unknown>>,
  meta: Readonly<Record<string, unknown>>,
  signal: AbortSignal,
): Promise<unknown> {
  const about = {
    [PROTOCOL_VERSION_KEY]: MODERN_VERSION,
    [CLIENT_INFO_KEY]: implementation,
    [CLIENT_CAPABILITIES_KEY]: {},
  }
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': MODERN_VERSION,
      'mcp-method': method,
      ...(typeof params.name === 'string' ? { 'mcp-name': encodeHeaderValue(params.name) } : {}),
    },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method,
      params: { ...params, _meta: { ...meta, ...about } },
    }),
    redirect: 'error',
    signal,
  })
  const text = await bounded(response)
  if (!(response.headers.get('content-type') ?? '').includes('text/event-stream')) return parseJson(text)
  const events = text.split('\n').filter((line) => line.startsWith('data: {'))
  return parseJson(events.at(-1)?.slice('data: '.length) ?? '')
}

/** The text of a reply; rejects when it is too long. */
async function bounded({ body }: Response): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body ?? []) {
    chunks.push(Buffer.from(chunk as Uint8Array))
    if ((bytes += chunks.at(-1)?.length ?? 0) > MAX_REPLY)
      throw new Error(`a reply of more than ${MAX_REPLY} bytes`)
  }
  return Buffer.concat(chunks).toString()
}
