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

export interface ToolModel {
  /** The effect of running the tool again. Default: `read_only`. */
  readonly effect?: Effect
  /**
   * Returns the duration of a run, in milliseconds, called at its start. `draw` gives numbers in [0, 1) for this run
   * only. Default: 0.
   */
  readonly tookMs?: (call: Call, draw: (purpose: string) => number) => Millis
  /** Returns the true value, which depends on the arguments only. */
  readonly answer: (args: Json) => Json
  readonly inputSchema?: Json
  readonly outputSchema?: Json
  /** Returns the error of a run that fails without a fault; undefined for a good run. */
  readonly fails?: (call: Call, now: Millis) => GatewayError | undefined
  /** Returns the outcome of a run. If present, it replaces `answer` and `fails`. */
  readonly ends?: (call: Call) => Outcome
}

/**
 * The state of a replica:
 *
 * - `away`: connections are refused.
 * - `resets`: takes requests and breaks the connection.
 * - `hangs`: takes requests and never answers.
 * - `fails`: a share `rate` of the runs ends with an error, in a quarter of the time.
 * - `slow`: runs take `times` as long.
 * - `limits`: rejects calls with HTTP 429 for `retryAfterMs`.
 * - `cuts`: a share `rate` of the replies lacks the end.
 */
export type Condition =
  | { readonly is: 'well' | 'away' | 'resets' | 'hangs' }
  | { readonly is: 'fails'; readonly rate: number; readonly as?: ErrorForm }
  | { readonly is: 'cuts'; readonly rate: number }
  | { readonly is: 'slow'; readonly times: number }
  | { readonly is: 'limits'; readonly retryAfterMs: Millis }

/**
 * The form in which a failed run is reported: JSON-RPC error -32603 (default), error -32602, or a result with
 * `isError`.
 */
export type ErrorForm = 'internal_error' | 'invalid_params' | 'tool_error'

export interface ServerModel {
  /** Number of endpoints. Default: 1. */
  readonly replicas?: number
  /** Returns the state of a replica when a request arrives. Default: always `well`. */
  readonly condition?: (replica: number, now: Millis, call?: Call) => Condition
  readonly tools: Readonly<Record<string, ToolModel>>
  /** Maximum number of runs at a time; further runs queue. Default: no limit. */
  readonly pool?: number
  /** True if a run continues to its end in the pool after the gateway has given it up. Default: false. */
  readonly runsOn?: boolean
}

/** Returns a random number in [0, 1); equal arguments give the same number. */
export type Draw = (key: string, purpose: string) => number

/** A simulated server: its tools take time on a clock, and calls reach it without a network. */
export class SimulatedServer implements ServerFacts {
  readonly endpoints: readonly string[]
  readonly mayMove = true
  runs = 0
  /** Number of runs whose caller had given up, and the time for which they continued, in milliseconds. */
  readonly unwanted = { runs: 0, ms: 0 }
  readonly #model: ServerModel
  readonly #clock: Clock
  readonly #draw: Draw
  readonly #definitions: ReadonlyMap<string, ToolDefinition>
  /** Runs queued for the pool, in order of arrival. */
  readonly #line = new Set<() => void>()
  readonly #reachability: Reachability
  /** For each replica, the functions that end its calls under way when the connections break. */
  readonly #connections: Set<() => void>[]
  #pool: number
  #busy = 0
  /**
   * The replica of each caller's session. `#next` chooses the replica of the next new session; the gateway's own
   * session is with replica 0.
   */
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

  /** Returns false for every tool: simulated calls have no fallback, so nothing asks for other tools. */
  offers(): boolean {
    return false
  }

  /** Returns the number of runs under way, and of queued runs. */
  get load(): { readonly busy: number; readonly waiting: number } {
    return { busy: this.#busy, waiting: this.#line.size }
  }

  /** Changes the size of the pool. Runs under way end as before. */
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

  /** Returns true if a result is the tool's unchanged answer to this arguments object, so the answer is right. */
  answered(result: CallResult, tool: string, args: Json): boolean {
    return result instanceof TrueAnswer && result.args === args && result.tool === this.#model.tools[tool]
  }

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

  /** Breaks all connections to a replica, as when its process ends: calls under way are lost. */
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

  /** Handles a call as a transport does: counts the attempt, and answers when the run is over. */
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
   * Returns the replica of a call for which no policy chose a replica: the replica of the caller's session. A lost call
   * ends the session, and a new session begins at the next replica that answers.
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

  /** Resolves to the outcome of a call whose connection is refused or breaks. */
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

  /** Returns random numbers for an attempt. They do not depend on other calls to the server. */
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

/** Durations of a refused connection, a broken connection and a rejected call, in milliseconds. */
const REFUSED_MS: Millis = 1
const RESET_MS: Millis = 5
const LIMITED_MS: Millis = 2

function timesOf(condition: Condition): number {
  if (condition.is === 'hangs') return Infinity
  return condition.is === 'slow' ? condition.times : 1
}

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

/** The unchanged answer of a tool. Its text is built when it is read for the first time, because it is rarely read. */
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
