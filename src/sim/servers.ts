import type { Call, CallResult, Outcome } from '../mesh/call.ts'
import { verdictOf } from '../mesh/classify.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { type GatewayError, gatewayError } from '../mesh/errors.ts'
import type { Effect, ToolDefinition } from '../mesh/policy.ts'
import type { ServerFacts } from '../mesh/scope.ts'
import { paramsOf } from '../protocol/jsonrpc.ts'
import { shaped } from './shaped.ts'

/** Arguments of a call, and the structured content of its answer. */
export type Json = Readonly<Record<string, unknown>>

/** A tool of a simulated server. */
export interface ToolModel {
  /** What running it again does. Default: `read_only`. */
  readonly effect?: Effect
  /** How long a run takes, in milliseconds, asked when it begins; `draw` gives numbers in [0, 1) that are the run's own. Default: no time at all. */
  readonly tookMs?: (call: Call, draw: (purpose: string) => number) => Millis
  /** What it answers: the true value, which depends on nothing but the arguments. */
  readonly answer: (args: Json) => Json
  readonly inputSchema?: Json
  readonly outputSchema?: Json
  /** How a run ends that fails by itself, and not by a fault; undefined for a good one. */
  readonly fails?: (call: Call, now: Millis) => GatewayError | undefined
  /** How a run ends, whatever the two above say: for one whose end is known. */
  readonly ends?: (call: Call) => Outcome
}

/** A simulated server. */
export interface ServerModel {
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
  /** Those that wait for a place in the pool, the first to come first. */
  readonly #line = new Set<() => void>()
  #pool: number
  #busy = 0

  constructor(name: string, model: ServerModel, { clock, draw }: { clock: Clock; draw: Draw }) {
    this.endpoints = [`simulated ${name}`]
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

  /** Runs that are under way, and those that wait. */
  get load(): { readonly busy: number; readonly waiting: number } {
    return { busy: this.#busy, waiting: this.#line.size }
  }

  /** From now on so many runs at a time; those that are under way end as they would have. */
  resize(pool: number): void {
    this.#pool = pool
    this.#serve()
  }

  /** What it says of its tools. */
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
  backAt = (): Millis => -Infinity
  hold = () => nothing

  /** Takes a call as a transport does: counts the attempt, and answers when its run is over. */
  send(call: Call): Promise<Outcome> {
    const { record, signal } = call
    record.attempts++
    record.sent = true
    call.onSent?.()
    record.replica = 0
    if (signal.aborted) return Promise.resolve({ kind: 'failed', error: signal.reason as GatewayError })
    const tool = this.#model.tools[call.tool ?? '']
    if (tool === undefined)
      return Promise.resolve({
        kind: 'failed',
        error: gatewayError('upstream_refused', 'there is no such tool'),
      })
    if (tool.tookMs !== undefined || this.#busy >= this.#pool || call.shapes !== undefined)
      return new Promise((resolve) => this.#enter(call, tool, resolve))
    this.runs++
    return Promise.resolve(this.#outcome(call, tool))
  }

  /** Each attempt of each call has draws of its own, whatever else the server is asked meanwhile. */
  #drawOf(call: Call) {
    return (purpose: string) => this.#draw(`${call.caller.id}/${String(call.id)}/${call.attempt}`, purpose)
  }

  #enter(call: Call, tool: ToolModel, resolve: (outcome: Outcome) => void): void {
    const { signal } = call
    let end: Cancel | undefined
    let endsAt = 0
    const tell = (outcome: Outcome) => {
      signal.removeEventListener('abort', giveUp)
      resolve(outcome)
    }
    const leave = () => {
      this.#busy--
      this.#serve()
    }
    const begin = () => {
      this.#busy++
      this.runs++
      const tookMs = tool.tookMs?.(call, this.#drawOf(call)) ?? 0
      endsAt = this.#clock.now() + tookMs
      if (signal.aborted) this.#isUnwanted(tookMs)
      end = this.#clock.after(tookMs, () => {
        end = undefined
        leave()
        if (signal.aborted) return
        const outcome = this.#outcome(call, tool)
        if (call.shapes === undefined) tell(outcome)
        else void shaped(this.#clock, call, outcome).then(tell)
      })
    }
    const giveUp = () => {
      tell({ kind: 'failed', error: signal.reason as GatewayError })
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
