import type { Call, Caller, CallResult, Outcome } from '../mesh/call.ts'
import { verdictOf } from '../mesh/classify.ts'
import { never } from '../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { type GatewayError, gatewayError } from '../mesh/errors.ts'
import type { Effect, ToolDefinition } from '../mesh/policy.ts'
import type { ServerFacts } from '../mesh/compile.ts'
import { paramsOf } from '../protocol/jsonrpc.ts'
import { Reachability } from '../upstreams/reachability.ts'
import { shaped } from './shaped.ts'

/** Arguments of a call, and the structured content of its answer. */
export type Json = Readonly<Record<string, unknown>>

/** A tool of a simulated server. */
export interface ToolModel {
  /** The effect of running the tool again. Default: `read_only`. */
  readonly effect?: Effect
  /** How long a run takes, in milliseconds, asked when it begins; `draw` gives numbers in [0, 1) that are the run's own. Default: no time at all. */
  readonly tookMs?: (call: Call, draw: (purpose: string) => number) => Millis
  /** Returns the true value, which depends on nothing but the arguments. */
  readonly answer: (args: Json) => Json
  readonly inputSchema?: Json
  readonly outputSchema?: Json
  /** How a run ends that fails by itself, and not by a fault; undefined for a good one. */
  readonly fails?: (call: Call, now: Millis) => GatewayError | undefined
  /** How a run ends, whatever the two above say: for one whose end is known. */
  readonly ends?: (call: Call) => Outcome
}

/**
 * How a replica is at some moment. `away`: connections to it are refused. `resets`: it takes requests and breaks the connection. `hangs`: it takes
 * requests and never answers. `fails`: a share `rate` of its runs ends with an error, in a quarter of the time. `slow`: runs take
 * `times` as long. `limits`: it sends calls away, with HTTP 429, for `retryAfterMs`. `cuts`: a share `rate` of its replies lacks its end.
 */
export type Condition =
  | { readonly is: 'well' | 'away' | 'resets' | 'hangs' }
  | { readonly is: 'fails'; readonly rate: number; readonly as?: ErrorForm }
  | { readonly is: 'cuts'; readonly rate: number }
  | { readonly is: 'slow'; readonly times: number }
  | { readonly is: 'limits'; readonly retryAfterMs: Millis }

/** How a run tells that it has failed: as JSON-RPC -32603, which is the default, as -32602, or as a result with `isError`. */
export type ErrorForm = 'internal_error' | 'invalid_params' | 'tool_error'

/** A simulated server. */
export interface ServerModel {
  /** How many endpoints it has. Default: 1. */
  readonly replicas?: number
  /** How a replica is when a request comes. Default: always well. */
  readonly condition?: (replica: number, now: Millis, call?: Call) => Condition
  readonly tools: Readonly<Record<string, ToolModel>>
  /** Runs at a time; what comes on top waits in line. Default: any number. */
  readonly pool?: number
  /** Whether a run that the gateway has given up goes on to its end, in its place in the pool. Default: false. */
  readonly runsOn?: boolean
}

/** Chance: the same texts give the same number in [0, 1). */
export type Draw = (key: string, purpose: string) => number

/** A server as the mesh finds it behind its innermost layer: its tools take time on a clock, and have no wire. */
export class SimulatedServer implements ServerFacts {
  readonly endpoints: readonly string[]
  readonly mayMove = true
  /** Runs that have begun. */
  runs = 0
  /** Runs that nobody waited for to their end, and for how long they went on like that, in milliseconds. */
  readonly unwanted = { runs: 0, ms: 0 }
  readonly #model: ServerModel
  readonly #clock: Clock
  readonly #draw: Draw
  readonly #definitions: ReadonlyMap<string, ToolDefinition>
  /** Runs that wait for a place in the pool, in the order of arrival. */
  readonly #line = new Set<() => void>()
  readonly #reachability: Reachability
  /** Ends what is under way, by its replica, as when its connection breaks. */
  readonly #connections: Set<() => void>[]
  #pool: number
  #busy = 0
  /** The replica that each caller has a session with, and the one that the next session begins at: the gateway's own is with the first. */
  readonly #homes = new WeakMap<Caller, number>()
  #next = 1

  constructor(name: string, model: ServerModel, { clock, draw }: { clock: Clock; draw: Draw }) {
    const { replicas = 1 } = model
    this.endpoints = Array.from({ length: replicas }, (_, replica) => `simulated ${name} ${replica}`)
    this.#connections = this.endpoints.map(() => new Set())
    this.#reachability = new Reachability({
      replicas: this.endpoints.map((_, replica) => ({
        probe: () => Promise.resolve(this.#answersProbes(replica)),
      })),
      clock,
      onBack: () => undefined,
    })
    this.#model = model
    this.#clock = clock
    this.#draw = draw
    this.#pool = model.pool ?? Infinity
    this.#definitions = new Map(
      Object.entries(model.tools).map(([tool, { inputSchema = ANYTHING, outputSchema }]) => [
        tool,
        { inputSchema, outputSchema, fingerprint: JSON.stringify([tool, inputSchema, outputSchema]) },
      ]),
    )
  }

  /** Simulated calls have no fallback: nothing takes them to another tool. */
  offers(): boolean {
    return false
  }

  /** Runs that are under way, and those that wait. */
  get load(): { readonly busy: number; readonly waiting: number } {
    return { busy: this.#busy, waiting: this.#line.size }
  }

  /** From now on so many runs at a time; those that are under way end as they would have. */
  resize(pool: number): void {
    this.#pool = pool
    this.#serve()
  }

  get definitions(): Iterable<ToolDefinition> {
    return this.#definitions.values()
  }

  facts(tool: string): ToolDefinition | undefined {
    return this.#definitions.get(tool)
  }

  effectOf(tool: string): Effect {
    return this.#model.tools[tool]?.effect ?? 'read_only'
  }

  /** Whether a result is what this tool answered to these very arguments, as it came from it, and thus true. */
  answered(result: CallResult, tool: string, args: Json): boolean {
    return result instanceof TrueAnswer && result.args === args && result.tool === this.#model.tools[tool]
  }

  /** The true answer to a call. */
  truth(tool: string, args: Json): Json | undefined {
    return this.#model.tools[tool]?.answer(args)
  }

  home(): undefined {}
  homes(): undefined {}
  leave(): void {}
  backAt = (replica: number): Millis => this.#reachability.backAt(replica)
  isLost = (replica: number): boolean => this.#reachability.isLost(replica)
  reached = (replica: number): Promise<boolean> | undefined => this.#reachability.reached(replica)
  hold = () => nothing

  /** All connections to a replica break, as when its process ends: what is under way there is lost. */
  drop(replica = 0): void {
    for (const lose of [...(this.#connections[replica] ?? [])]) lose()
  }

  #conditionOf(replica: number, call?: Call): Condition {
    return this.#model.condition?.(replica, this.#clock.now(), call) ?? WELL
  }

  #answersProbes(replica: number): boolean {
    const { is } = this.#conditionOf(replica)
    return is !== 'away' && is !== 'resets'
  }

  /** Takes a call as a transport does: counts the attempt, and answers when its run is over. */
  send(call: Call): Promise<Outcome> {
    const { record, signal } = call
    const replica = call.replica ?? this.#homeOf(call.caller)
    const condition = this.#conditionOf(replica, call)
    record.attempts++
    record.replica = replica
    if (condition.is === 'away') return this.#lose(call, replica, false, REFUSED_MS)
    record.sent = true
    call.onSent?.()
    if (signal.aborted) return Promise.resolve({ kind: 'failed', error: signal.reason as GatewayError })
    const tool = this.#model.tools[call.tool ?? '']
    if (tool === undefined)
      return Promise.resolve({
        kind: 'failed',
        error: gatewayError('upstream_refused', 'there is no such tool'),
      })
    if (condition.is === 'resets') {
      this.runs++
      return this.#lose(call, replica, true, RESET_MS)
    }
    if (condition.is === 'limits') {
      const { retryAfterMs } = condition
      const error = gatewayError('upstream_rate_limited', 'HTTP 429', {
        sent: true,
        retryAfterMs,
        status: 429,
      })
      return this.#clock.sleep(LIMITED_MS, never).then(() => ({ kind: 'failed', error }))
    }
    const isPlain = tool.tookMs === undefined && this.#model.condition === undefined
    if (!isPlain || this.#busy >= this.#pool || call.wire?.shapes !== undefined)
      return new Promise((resolve) => this.#enter(call, tool, condition, replica, resolve))
    this.runs++
    return Promise.resolve(this.#outcome(call, tool))
  }

  /**
   * The replica of a call that no policy sends to another one: that of its caller's session, which is over when a call of it is lost. A new
   * one begins at the next replica that answers.
   */
  #homeOf(caller: Caller): number {
    const { length } = this.endpoints
    let home = this.#homes.get(caller)
    for (let tries = 0; home === undefined && tries < length; tries++) {
      const replica = this.#next++ % length
      if (this.#answersProbes(replica) || tries === length - 1) home = replica
    }
    this.#homes.set(caller, home!)
    return home!
  }

  /** The end of a call whose connection cannot be made, or breaks. */
  async #lose(call: Call, replica: number, sent: boolean, afterMs: Millis): Promise<Outcome> {
    await this.#clock.sleep(afterMs, never)
    return this.#lost(call, replica, sent)
  }

  #lost({ caller }: Call, replica: number, sent: boolean): Outcome {
    if (this.#homes.get(caller) === replica) this.#homes.delete(caller)
    this.#reachability.suspect(replica, !sent)
    return {
      kind: 'failed',
      error: sent
        ? gatewayError('upstream_disconnected', 'the connection broke', { sent })
        : gatewayError('upstream_unavailable', 'connection refused'),
    }
  }

  /** Each attempt of each call has draws of its own, whatever else the server is asked meanwhile. */
  #drawOf(call: Call) {
    return (purpose: string) => this.#draw(`${call.caller.id}/${String(call.id)}/${call.attempt}`, purpose)
  }

  #enter(
    call: Call,
    tool: ToolModel,
    condition: Condition,
    replica: number,
    resolve: (outcome: Outcome) => void,
  ): void {
    const { signal } = call
    const connections = this.#connections[replica]!
    let end: Cancel | undefined
    let endsAt = 0
    const tell = (outcome: Outcome) => {
      signal.removeEventListener('abort', giveUp)
      connections.delete(lose)
      resolve(outcome)
    }
    const lose = () => {
      tell(this.#lost(call, replica, true))
      stop()
    }
    const leave = () => {
      this.#busy--
      this.#serve()
    }
    const begin = () => {
      this.#busy++
      this.runs++
      const draw = this.#drawOf(call)
      const fails = condition.is === 'fails' && draw('fails') < condition.rate ? condition : undefined
      const usualMs = tool.tookMs?.(call, draw) ?? 0
      const tookMs = fails !== undefined ? usualMs / 4 : timesOf(condition) * usualMs
      endsAt = this.#clock.now() + tookMs
      if (signal.aborted) this.#isUnwanted(tookMs)
      end = this.#clock.after(tookMs, () => {
        end = undefined
        leave()
        if (signal.aborted) return
        const cuts = condition.is === 'cuts' && draw('cuts') < condition.rate
        const outcome =
          fails !== undefined
            ? brokenOutcome(call, fails.as)
            : cuts
              ? cutOutcome(call)
              : this.#outcome(call, tool)
        if (call.wire?.shapes === undefined) tell(outcome)
        else void shaped(this.#clock, call, outcome).then(tell)
      })
    }
    const giveUp = () => {
      tell({ kind: 'failed', error: signal.reason as GatewayError })
      stop()
    }
    const stop = () => {
      if (this.#model.runsOn === true) {
        if (end !== undefined) this.#isUnwanted(endsAt - this.#clock.now())
        return
      }
      if (end === undefined) this.#line.delete(begin)
      else {
        end()
        leave()
      }
    }
    signal.addEventListener('abort', giveUp)
    connections.add(lose)
    if (this.#busy < this.#pool) begin()
    else this.#line.add(begin)
  }

  #isUnwanted(ms: Millis): void {
    this.unwanted.runs++
    this.unwanted.ms += ms
  }

  #serve(): void {
    for (const begin of this.#line) {
      if (this.#busy >= this.#pool) return
      this.#line.delete(begin)
      begin()
    }
  }

  #outcome(call: Call, tool: ToolModel): Outcome {
    if (tool.ends !== undefined) return tool.ends(call)
    const error = tool.fails?.(call, this.#clock.now())
    if (error !== undefined) return { kind: 'failed', error }
    const args = (paramsOf(call.message.value).arguments as Json | undefined) ?? NONE
    const result = new TrueAnswer(call.id, tool, args)
    return { kind: 'answered', result, verdict: verdictOf(result.value) }
  }
}

const WELL: Condition = { is: 'well' }

/** How long it takes to refuse a connection, to break one, and to send a call away, in milliseconds. */
const REFUSED_MS: Millis = 1
const RESET_MS: Millis = 5
const LIMITED_MS: Millis = 2

/** How many times as long as usual a run takes. */
function timesOf(condition: Condition): number {
  if (condition.is === 'hangs') return Infinity
  return condition.is === 'slow' ? condition.times : 1
}

/** The end of a run that fails. */
function brokenOutcome({ id }: Call, as: ErrorForm = 'internal_error'): Outcome {
  const value = { jsonrpc: '2.0', id, ...errorForms[as] }
  return {
    kind: 'answered',
    verdict: verdictOf(value),
    result: { status: 200, text: JSON.stringify(value), value },
  }
}

const errorForms: Readonly<Record<ErrorForm, Json>> = {
  internal_error: { error: { code: -32_603, message: 'internal error' } },
  invalid_params: { error: { code: -32_602, message: 'invalid params' } },
  tool_error: { result: { content: [{ type: 'text', text: 'it failed' }], isError: true } },
}

/** A reply of which the end is missing. */
function cutOutcome({ id }: Call): Outcome {
  const value = { jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: '{"service":"x","val' }] } }
  return {
    kind: 'answered',
    verdict: 'unchecked',
    result: { status: 200, text: JSON.stringify(value), value },
  }
}

const ANYTHING: Json = { type: 'object' }
const NONE: Json = {}
const nothing = () => undefined

/** The answer of a tool, as long as nobody has changed it. Its text is written when somebody reads it: on most ways nobody does. */
class TrueAnswer implements CallResult {
  readonly status = 200
  readonly tool: ToolModel
  readonly args: Json
  readonly value: Readonly<Record<string, unknown>>
  #text: string | undefined

  constructor(id: Call['id'], tool: ToolModel, args: Json) {
    this.tool = tool
    this.args = args
    this.value = { jsonrpc: '2.0', id, result: { content: NO_BLOCKS, structuredContent: tool.answer(args) } }
  }

  get text(): string {
    return (this.#text ??= JSON.stringify(this.value))
  }
}

const NO_BLOCKS: readonly unknown[] = []
