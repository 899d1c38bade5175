import type { Cancellation } from '../../../mesh/cancel.ts'
import type { Clock, Millis } from '../../../mesh/clock.ts'
import { glob } from '../../../mesh/match.ts'
import { implementation } from '../../../protocol/identity.ts'
import { isObject, parseJson } from '../../../protocol/jsonrpc.ts'
import {
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  encodeHeaderValue,
  MODERN_VERSION,
  PROTOCOL_VERSION_KEY,
} from '../../../protocol/versions.ts'
import { INTENT_KEY } from '../../../protocol/task.ts'
import { annotatedEffect } from '../../../registry/entry-shape.ts'
import { patiently, steadily, type Within } from '../../../load/timing.ts'
import { bodyText } from '../../shared/body-text.ts'
import { type OwnCall, PROMPT_MS, UNANSWERED } from './evidence.ts'

/**
 * Maximum number of calls in a run, and of calls under way at a time, for hit servers and for other servers each.
 * Further calls wait.
 */
const MAX_CALLS = 10_000
const MAX_IN_FLIGHT = 256

/** Maximum number of bytes read from a reply. */
const MAX_REPLY = 8 * 1024 ** 2

/** How long the gateway may take to list tools, in milliseconds. */
const PATIENCE_MS: Millis = 10_000

/**
 * Maximum number of tools that a run calls, per server and in all. With more tools, each tool would get too few calls
 * to show an effect.
 */
const TRIED = { ofServer: 16, all: 64 }
const CALLED = { hit: { ofServer: 8, all: 16 }, others: { ofServer: 4, all: 16 } }

const TRIED_AT_ONCE = 4

/** Minimum number of calls in the baseline before the faults, and its rate in calls per second. */
const BASELINE_CALLS = 10
const BASELINE_RATE = 20

/** Longest wait before the injection until all calls succeed, and the pause between two checks, in milliseconds. */
const STEADY_MS: Millis = 20_000
const AGAIN_MS: Millis = 1_000

/** Longest wait for open calls after the last new call, in milliseconds. */
const DRAIN_MS: Millis = 5_000

/** Maximum number of calls per second at servers that are not hit. */
const OTHERS_RATE = 5

/** Maximum number of different endings that are counted separately. */
const MAX_WORDS = 50

/** Maximum number of pages read from a tool list. */
const MAX_PAGES = 100

export interface TrafficOptions {
  /** URL of the gateway's data plane. */
  readonly data: string
  readonly rate: number
  /** Tools to call, as a glob; undefined: tools declared read-only. */
  readonly tool: string | undefined
  /** Prefix of the calls' task names. Equal calls have equal names in every run. */
  readonly name: string
}

export interface Servers {
  /** Target servers of the faults. */
  readonly hit: readonly string[]
  readonly others: readonly string[]
}

/** A tool of a server, with arguments valid for its schema. */
interface Target {
  readonly server: string
  readonly tool: string
  readonly args: unknown
}

/** The outcome of the calls of a run: the number of calls, and the number of calls per ending. */
export interface TrafficReport {
  readonly calls: number
  readonly endings: Readonly<Record<string, number>>
}

/** Thrown when no traffic is possible. The message names the remedy. */
export class TrafficError extends Error {}

/** A stream of calls at a steady rate. Hit servers and other servers have a separate lane each. */
interface Lane {
  readonly isHit: boolean
  targets: readonly Target[]
  readonly rate: number
  /** Prefix of its task names. */
  readonly name: string
}

/** A tool's state without faults; `unfit` tools are left out, `bad` tools have to recover. */
type Fitness = 'good' | 'unfit' | 'bad'

/**
 * Calls tools on the gateway's own data plane in turn at a steady rate, as an agent of the modern era does. Call `n` is
 * the same in every run: its tool, arguments and task depend only on `n`.
 */
export class Traffic {
  readonly #options: TrafficOptions
  readonly #clock: Clock
  readonly #lanes: readonly Lane[]
  readonly #endings = new Map<string, number>()
  readonly #calls: OwnCall[] = []
  /** Open calls, in the order of their beginning. */
  readonly #underWay = new Set<{
    readonly target: Target
    readonly isHit: boolean
    readonly startedAt: Millis
  }>()

  /** Servers that get no calls, each with the reason. */
  readonly leftOut: readonly string[]

  private constructor(
    options: TrafficOptions,
    clock: Clock,
    { lanes, leftOut }: { readonly lanes: readonly Lane[]; readonly leftOut: readonly string[] },
  ) {
    this.#options = options
    this.#clock = clock
    this.#lanes = lanes
    this.leftOut = leftOut
  }

  /**
   * Lists the tools of these servers, until `stop` aborts. Rejects with a `TrafficError` when no hit server has a
   * callable tool.
   */
  static async to(
    { hit, others }: Servers,
    options: TrafficOptions,
    clock: Clock,
    stop: Cancellation,
  ): Promise<Traffic> {
    const within = (ms: Millis) => ({ clock, stop, ms })
    const { targets, unlisted, leftOut } = await targetsOf(hit, options, within(PATIENCE_MS))
    if (targets.length > 0) {
      // Other servers are only observed: a slow list must not delay the run.
      const rest = await targetsOf(others, options, within(PROMPT_MS))
      const { name, rate } = options
      const lanes = [
        { isHit: true, targets, rate, name },
        { isHit: false, targets: rest.targets, rate: Math.min(rate, OTHERS_RATE), name: `${name}-others` },
      ]
      return new Traffic(options, clock, { lanes, leftOut: [...leftOut, ...rest.leftOut] })
    }
    if (unlisted !== undefined) throw unlisted
    const what =
      options.tool === undefined ? 'declares itself read-only (readOnlyHint)' : `matches ${options.tool}`
    throw new TrafficError(
      `no traffic can be made: no tool of ${hit.join(', ')} ${what}; --tool GLOB names callable tools`,
    )
  }

  get report(): TrafficReport {
    return { calls: this.#calls.length + this.#underWay.size, endings: Object.fromEntries(this.#endings) }
  }

  /** The calls so far, in order; without the baseline's calls. */
  get calls(): readonly OwnCall[] {
    const open = [...this.#underWay].map(({ target: { server, tool }, isHit, startedAt }) => {
      return { server, tool, isHit, startedAt, endedAt: undefined, ending: GIVEN_UP }
    })
    return [...this.#calls, ...open].sort((a, b) => a.startedAt - b.startedAt)
  }

  /** The called tools of hit servers, as `server/tool`. */
  get tools(): readonly string[] {
    const hit = this.#lanes.filter(({ isHit }) => isHit).flatMap(({ targets }) => targets)
    return hit.map(({ server, tool }) => `${server}/${tool}`)
  }

  /**
   * Checks that calls succeed before any injection. Tries every tool, and leaves out slow tools and tools that refuse
   * made-up arguments. Then calls the other tools for about a second. Resolves to the omitted tools. Rejects with a
   * `TrafficError` when the servers are not in order within 20 s.
   */
  async settle(stop: Cancellation): Promise<readonly string[]> {
    const until = this.#clock.now() + STEADY_MS
    const unfit: string[] = []
    for (;;) {
      const problem = (await this.#tryOut(unfit, stop)) ?? (await this.#baseline(stop))
      if (problem === undefined || stop.aborted) return unfit
      if (this.#clock.now() >= until)
        throw new TrafficError(
          `nothing is injected, because calls fail already: ${problem} (tried for ${STEADY_MS / 1_000} s)`,
        )
      await this.#clock.sleep(AGAIN_MS, stop).catch(() => undefined)
    }
  }

  /**
   * Tries every tool once, and leaves out uncallable tools. Resolves to the first problem of the other tools; undefined
   * without a problem.
   */
  async #tryOut(unfit: string[], stop: Cancellation): Promise<string | undefined> {
    let problem: string | undefined
    for (const lane of this.#lanes) {
      const fit: Target[] = []
      for (let at = 0; at < lane.targets.length && !stop.aborted; at += TRIED_AT_ONCE) {
        const some = lane.targets.slice(at, at + TRIED_AT_ONCE)
        const endings = await Promise.all(some.map((target) => this.#once(target, `${lane.name}-try`, stop)))
        // A stop cancels the calls, so their endings say nothing about the tools.
        if (stop.aborted) return undefined
        for (const [index, target] of some.entries()) {
          const ending = endings[index] ?? GIVEN_UP
          const fitness = fitnessOf(ending)
          if (fitness === 'unfit') unfit.push(`${target.server}/${target.tool} (${ending})`)
          else fit.push(target)
          if (fitness === 'bad') problem ??= `${target.server}/${target.tool} ended with ${ending}`
        }
      }
      if (stop.aborted) return undefined
      lane.targets = spread(fit, CALLED[lane.isHit ? 'hit' : 'others'])
      if (lane.isHit && fit.length === 0)
        throw new TrafficError(
          `no traffic can be made: no tool gives a good answer to made-up arguments (${unfit.slice(0, 5).join(', ')}); --tool GLOB names others`,
        )
    }
    return problem
  }

  /** Calls the remaining tools at a steady rate. Resolves to the first problem; undefined when all calls succeed. */
  async #baseline(stop: Cancellation): Promise<string | undefined> {
    const targets = this.#lanes.flatMap((lane) => lane.targets)
    for (let index = 0; index < Math.max(BASELINE_CALLS, targets.length) && !stop.aborted; index++) {
      const target = targets[index % targets.length]
      if (target === undefined) return undefined
      const ending = await this.#once(target, `${this.#options.name}-baseline-${index}`, stop)
      if (ending !== GOOD) return `${target.server}/${target.tool} ended with ${ending}`
      await this.#clock.sleep(1_000 / BASELINE_RATE, stop).catch(() => undefined)
    }
    return undefined
  }

  /** Makes a call that does not count as a call of the run. Resolves to the ending of the call. */
  #once(target: Target, intent: string, stop: Cancellation): Promise<string> {
    const late = `no answer within ${PROMPT_MS / 1_000} s`
    return patiently({ clock: this.#clock, ms: PROMPT_MS, stop }, (signal) =>
      this.#ask(target, intent, signal, late),
    )
  }

  /** Resolves to the names of all tools on `/mcp`; undefined when the list does not arrive in time. */
  listed(): Promise<readonly string[] | undefined> {
    const pages = async (signal: AbortSignal) => {
      const names: string[] = []
      let cursor: unknown
      for (let page = 0; page < MAX_PAGES; page++) {
        const params = cursor === undefined ? {} : { cursor }
        const { tools, nextCursor } = await listAt(`${this.#options.data}/mcp`, params, signal)
        names.push(...tools.map(({ name }) => String(name)))
        cursor = nextCursor
        if (typeof cursor !== 'string') break
      }
      return names
    }
    return patiently({ clock: this.#clock, ms: PATIENCE_MS }, pages).catch(() => undefined)
  }

  /** Makes calls until `stop` aborts; open calls then have 5 s to end. Never rejects. */
  async run(stop: Cancellation): Promise<void> {
    const abort = new AbortController()
    const running = Promise.all(this.#lanes.map((lane) => this.#runLane(lane, stop, abort.signal)))
    let cancel = () => {}
    stop.addEventListener('abort', () => (cancel = this.#clock.after(DRAIN_MS, () => abort.abort())))
    await running
    cancel()
  }

  #runLane({ targets, rate, name, isHit }: Lane, stop: Cancellation, signal: AbortSignal): Promise<void> {
    const most = targets.length > 0 ? MAX_CALLS : 0
    return steadily({ clock: this.#clock, rate, concurrent: MAX_IN_FLIGHT, most }, stop, (n) =>
      this.#call(targets[n % targets.length]!, isHit, `${name}-${n}`, signal),
    )
  }

  async #call(target: Target, isHit: boolean, intent: string, signal: AbortSignal): Promise<void> {
    const startedAt = this.#clock.now()
    const open = { target, isHit, startedAt }
    this.#underWay.add(open)
    const ending = await this.#ask(target, intent, signal, GIVEN_UP)
    this.#underWay.delete(open)
    const { server, tool } = target
    const endedAt = ending === GIVEN_UP ? undefined : this.#clock.now()
    this.#calls.push({ server, tool, isHit, startedAt, endedAt, ending })
    const known = this.#endings.has(ending) || this.#endings.size < MAX_WORDS ? ending : 'other'
    this.#endings.set(known, (this.#endings.get(known) ?? 0) + 1)
  }

  /** Resolves to a call's ending; `late` is the ending of a cancelled call. */
  #ask({ server, tool, args }: Target, intent: string, signal: AbortSignal, late: string): Promise<string> {
    const params = { name: tool, arguments: args }
    const url = `${this.#options.data}/mcp/${server}`
    return askModern(url, 'tools/call', params, { [INTENT_KEY]: intent }, signal).then(endingOf, () =>
      signal.aborted ? late : UNANSWERED,
    )
  }
}

/** Takes tools of each server in turn, up to the limits per server and in all. */
function spread(
  targets: readonly Target[],
  { ofServer, all }: { readonly ofServer: number; readonly all: number },
): readonly Target[] {
  const byServer = new Map<string, Target[]>()
  for (const target of targets) byServer.set(target.server, [...(byServer.get(target.server) ?? []), target])
  const turns = Array.from({ length: ofServer }, (_, turn) =>
    [...byServer.values()].flatMap((tools) => tools[turn] ?? []),
  )
  return turns.flat().slice(0, all)
}

const GOOD = 'result'
const GIVEN_UP = 'given up at the end'

/** Endings caused by the made-up arguments or the tool, not by the server or the mesh. */
const toolsOwn: ReadonlySet<string> = new Set(['tool error', 'BW_INVALID_ARGUMENTS', 'BW_INCORRECT_RESULT'])

function fitnessOf(ending: string): Fitness {
  if (ending === GOOD) return 'good'
  return toolsOwn.has(ending) || ending.startsWith('error ') || ending.startsWith('no answer')
    ? 'unfit'
    : 'bad'
}

/** Returns a call's ending in a few words. */
function endingOf(reply: unknown): string {
  if (!isObject(reply)) return 'no JSON'
  const { result, error } = reply
  if (isObject(result)) return result.isError === true ? 'tool error' : GOOD
  if (!isObject(error)) return 'no response'
  const code = isObject(error.data) ? error.data.code : undefined
  return typeof code === 'string' ? code.slice(0, 64) : `error ${String(error.code).slice(0, 16)}`
}

interface Found {
  readonly targets: readonly Target[]
  /** The error of the first server whose tools cannot be listed; undefined if there is none. */
  readonly unlisted: TrafficError | undefined
  /** Servers without a callable tool, each with the reason. */
  readonly leftOut: readonly string[]
}

/** Lists the tools of each server separately: a failure does not affect other servers. Never rejects. */
async function targetsOf(
  servers: readonly string[],
  options: TrafficOptions,
  within: Required<Within>,
): Promise<Found> {
  const listed = await Promise.all(
    servers.map(async (server) => {
      const found = await targetsAt(server, options, within).catch((error: unknown) =>
        error instanceof TrafficError ? error : new TrafficError(String(error)),
      )
      return { server, found }
    }),
  )
  const unlisted = listed.flatMap(({ found }) => (found instanceof TrafficError ? [found] : []))
  return {
    targets: spread(
      listed.flatMap(({ found }) => (found instanceof TrafficError ? [] : found)),
      TRIED,
    ),
    unlisted: unlisted[0],
    leftOut: listed.flatMap(({ server, found }) => {
      if (found instanceof TrafficError) return [`${server} (${found.message})`]
      return found.length === 0 ? [`${server} (no tool to call)`] : []
    }),
  }
}

/** Returns the callable tools of a server. Rejects with a `TrafficError` when the server does not list its tools. */
async function targetsAt(
  server: string,
  { data, tool }: TrafficOptions,
  { clock, stop, ms }: Required<Within>,
): Promise<Target[]> {
  let isLate = false
  const list = async (signal: AbortSignal) => {
    try {
      return await listAt(`${data}/mcp/${server}`, {}, signal)
    } finally {
      isLate = signal.aborted
    }
  }
  try {
    const { tools } = await patiently({ clock, stop, ms }, list)
    const isMeant = tool === undefined ? onlyReads : named(tool)
    return tools.flatMap((entry) => {
      if (typeof entry.name !== 'string' || !isMeant(entry)) return []
      return { server, tool: entry.name, args: exampleOf(entry.inputSchema) ?? {} }
    })
  } catch (error) {
    const { message, cause } = error as Error
    const why = !isLate
      ? cause === undefined
        ? message.slice(0, 200)
        : 'it cannot be reached: is this its data port? (--data URL)'
      : stop.aborted
        ? 'the command was stopped'
        : `no answer within ${ms / 1_000} s`
    throw new TrafficError(`no tools of ${server} can be listed at ${data}: ${why}`)
  }
}

/** Returns a page of an endpoint's tool list. Rejects with a short message when there is no list. */
async function listAt(
  url: string,
  params: Readonly<Record<string, unknown>>,
  signal: AbortSignal,
): Promise<{ readonly tools: readonly Entry[]; readonly nextCursor: unknown }> {
  const reply = await askModern(url, 'tools/list', params, {}, signal)
  const result = isObject(reply) ? reply.result : undefined
  if (!isObject(result) || !Array.isArray(result.tools)) throw new Error(endingOf(reply))
  return { tools: result.tools.filter(isObject), nextCursor: result.nextCursor }
}

type Entry = Readonly<Record<string, unknown>>

const onlyReads = ({ annotations }: Entry): boolean => annotatedEffect(annotations) === 'read_only'

function named(pattern: string): (entry: Entry) => boolean {
  const isOne = glob(pattern)
  return ({ name }) => isOne(String(name))
}

/** Deepest nesting of made-up arguments. */
const MAX_DEPTH = 8

/** Returns the simplest value that a JSON schema allows; objects get their required properties only. */
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

/**
 * Sends a request of the modern era, and reads the response. Rejects when the connection fails or the response never
 * ends.
 */
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
  const text = await bodyText(response, { maxBytes: MAX_REPLY, signal })
  if (!(response.headers.get('content-type') ?? '').includes('text/event-stream')) return parseJson(text)
  const events = text.split('\n').filter((line) => line.startsWith('data: {'))
  return parseJson(events.at(-1)?.slice('data: '.length) ?? '')
}
