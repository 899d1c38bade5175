import { newFaultCounts } from '../../src/chaos/accounting/counts.ts'
import { faultSchema } from '../../src/chaos/plan/schema.ts'
import { assertionsOf } from '../../src/commands/break/scenario/assertions.ts'
import type { Counted, OwnCall } from '../../src/commands/break/scenario/evidence.ts'
import type { ChaosState, Faults, InjectedFault } from '../../src/commands/break/scenario/gateway.ts'
import type { Aimed, Scenario } from '../../src/commands/break/scenario/library.ts'
import { judged } from '../../src/commands/break/scenario/result.ts'
import { type OwnTraffic, runScenario } from '../../src/commands/break/scenario/run.ts'
import { config as configSchema } from '../../src/config/schema/schema.ts'
import type { Call, CallResult, Outcome } from '../../src/mesh/call.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { verdictOf } from '../../src/mesh/classify.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import type { MeshEvent } from '../../src/mesh/policy.ts'
import { retries } from '../../src/policies/retry/tries.ts'
import { SimulatedGateway } from '../../src/sim/gateway.ts'
import type { ToolModel } from '../../src/sim/servers.ts'
import { VirtualClock } from '../../src/sim/virtual-clock.ts'

const TOOL = 'look_up'
const HIT = 'hit'
const WITNESS = 'witness'

/** Latency of a healthy tool, in milliseconds. */
const TOOK_MS = 5

/** How long calls may take to end after the last one began, in milliseconds; the same as for a run over sockets. */
const DRAIN_MS = 5_000

/** Calls a second at the healthy server, and the most calls under way at both servers; the same as over sockets. */
const WITNESS_RATE = 5
const MAX_IN_FLIGHT = 256

/** A read-only tool with long results and a schema. */
const lookUp: ToolModel = {
  tookMs: () => TOOK_MS,
  answer: () => found,
  outputSchema: {
    type: 'object',
    properties: { city: { type: 'string' }, items: { type: 'array', items: { type: 'integer' } } },
    required: ['city', 'items'],
  },
  ends: ({ id }) => {
    const result = { content: [{ type: 'text', text: JSON.stringify(found) }], structuredContent: found }
    const value = { jsonrpc: '2.0', id, result }
    const answer: CallResult = { status: 200, text: JSON.stringify(value), value }
    return { kind: 'answered', result: answer, verdict: verdictOf(value) }
  },
}

const found = { city: 'example', items: [1, 2, 3], about: 'x'.repeat(4_096) }

/**
 * Runs a scenario against a simulated gateway in virtual time, for the scenario's full length. A slow machine cannot
 * break a bound of a second here. `policies` is the block of a config. Resolves to the broken assertions with their
 * measurements, or to the reason why the run proves nothing.
 */
export async function simulatedScenario(
  scenario: Scenario,
  policies: object = {},
): Promise<readonly string[]> {
  const clock = new VirtualClock()
  const gateway = new ScenarioGateway(clock, policies)
  const traffic = new SimulatedTraffic(gateway.mesh, clock, scenario.traffic)
  const parts = { gateway, clock, traffic, stop: new Cancellation(), say: () => undefined }
  const options = {
    server: HIT,
    allowWrites: false,
    hit: [HIT],
    others: [WITNESS],
    durationMs: scenario.duration,
  }
  const { flaws, evidence } = await clock.run(runScenario(scenario, options, parts))
  if (flaws.length > 0 || evidence === undefined) return flaws
  return judged(assertionsOf(scenario.assert), evidence)
    .filter(({ verdict }) => verdict !== 'pass')
    .map(({ name, measured }) => `${name}: ${measured}`)
}

/** The control port of a simulated gateway, as a run sees the port. */
class ScenarioGateway implements Faults {
  readonly mesh: SimulatedGateway
  readonly #armed = new Set<string>()
  /** The faults of the run, armed or not. */
  readonly #runs = new Set<SimulatedGateway['faults'][number]>()
  readonly #open = new Map<string, string>()
  readonly #counted = {
    calls: 0,
    attempts: 0,
    retries: 0,
    rejections: {} as Record<string, number>,
    verdicts: {} as Record<string, number>,
  }

  constructor(clock: VirtualClock, policies: object) {
    const servers = { [HIT]: { tools: { [TOOL]: lookUp } }, [WITNESS]: { tools: { [TOOL]: lookUp } } }
    this.mesh = new SimulatedGateway({
      clock,
      seed: 1,
      servers,
      policies: configSchema.parse({ policies }).policies,
      onCall: (call, outcome) => this.#count(call, outcome),
      onEvent: (event) => this.#hear(event),
    })
  }

  #count({ server, record }: Call, outcome: Outcome): void {
    if (server !== HIT) return
    const add = (counts: Record<string, number>, key: string) => (counts[key] = (counts[key] ?? 0) + 1)
    this.#counted.calls++
    this.#counted.attempts += record.attempts
    this.#counted.retries += retries.of(record)
    if (outcome.kind === 'rejected') add(this.#counted.rejections, outcome.error.reason)
    for (const reason of record.supersededRejections ?? []) add(this.#counted.rejections, reason)
    if (outcome.kind === 'answered') add(this.#counted.verdicts, outcome.verdict)
  }

  #hear({ type, server, tool, detail }: MeshEvent): void {
    if (type === 'breaker') this.#open.set(`${server}/${tool}`, String(detail?.state))
  }

  #faults() {
    return [...this.#runs].map(({ fault, counts, discovery, concurrent }) => ({
      ...newFaultCounts(),
      ...counts,
      id: fault.name,
      type: fault.type,
      discovery,
      concurrent,
    }))
  }

  async state(): Promise<ChaosState> {
    const faults = this.#faults().filter(({ id }) => this.#armed.has(id))
    return { state: 'armed', mode: 'act', seed: 7, engineErrors: 0, maxTtl: Infinity, faults }
  }

  async countsOf(name: string) {
    return this.#faults().find(({ id }) => id === name)
  }

  async servers() {
    return [HIT, WITNESS].map((name) => ({ name, transport: 'http' as const, isUp: true }))
  }

  async breakers(servers: readonly string[]): Promise<readonly string[]> {
    return [...this.#open].flatMap(([key, state]) =>
      state !== 'closed' && servers.includes(key.split('/')[0]!) ? [key] : [],
    )
  }

  /** Breakers are new in each run. */
  async renewBreakers(): Promise<void> {}

  async metricsAge() {
    return 0
  }

  async counters(): Promise<Counted> {
    return structuredClone(this.#counted)
  }

  async inject({ target, config }: Aimed, durationMs: number): Promise<InjectedFault> {
    const match = { ...(config.match as object | undefined), server: target }
    const fault = faultSchema().parse({ ...config, match, ttl: durationMs })
    this.mesh.arm({ seed: 7, faults: [fault] })
    this.#armed.add(fault.name)
    for (const armed of this.mesh.faults) this.#runs.add(armed)
    return { id: fault.name, warnings: [] }
  }

  async renew(): Promise<void> {}

  /** A run clears all its faults at the same time. */
  async clear(id: string): Promise<void> {
    this.#armed.delete(id)
    if (this.#armed.size === 0) this.mesh.disarm()
  }
}

/** A call that has not ended yet. */
type OpenCall = { -readonly [Key in keyof OwnCall]: OwnCall[Key] }

/** Calls at a steady rate at both servers, one tool each. */
class SimulatedTraffic implements OwnTraffic {
  readonly tools = [`${HIT}/${TOOL}`]
  readonly #calls: OpenCall[] = []
  readonly #gateway: SimulatedGateway
  readonly #clock: VirtualClock
  readonly #rate: number

  constructor(gateway: SimulatedGateway, clock: VirtualClock, rate: number) {
    this.#gateway = gateway
    this.#clock = clock
    this.#rate = rate
  }

  get calls(): readonly OwnCall[] {
    return this.#calls
  }

  async settle(): Promise<readonly string[]> {
    await this.#gateway.prepare()
    for (let index = 0; index < 20; index++) {
      const { ending } = await this.#call(index % 2 === 0 ? HIT : WITNESS, `baseline-${index}`, NEVER)
      if (ending !== 'result') throw new Error(`a call ended with ${ending} before anything was injected`)
    }
    this.#calls.length = 0
    return []
  }

  async run(stop: Cancellation): Promise<void> {
    const giveUp = new Cancellation()
    const gaveUp = gatewayError('cancelled', 'the caller gave up', { sent: true })
    stop.addEventListener('abort', () => void this.#clock.after(DRAIN_MS, () => giveUp.abort(gaveUp)))
    await Promise.all([
      this.#lane(HIT, this.#rate, stop, giveUp),
      this.#lane(WITNESS, Math.min(this.#rate, WITNESS_RATE), stop, giveUp),
    ])
  }

  async listed(): Promise<readonly string[]> {
    return this.tools
  }

  async #lane(server: string, rate: number, stop: Cancellation, giveUp: Cancellation): Promise<void> {
    const underWay = new Set<Promise<unknown>>()
    const over = new Promise<void>((resolve) => stop.addEventListener('abort', resolve))
    const startedAt = this.#clock.now()
    for (let index = 0; !stop.aborted; index++) {
      const dueMs = startedAt + (index * 1_000) / rate - this.#clock.now()
      if (dueMs > 0) await this.#clock.sleep(dueMs, stop).catch(() => undefined)
      if (underWay.size >= MAX_IN_FLIGHT) await Promise.race([...underWay, over])
      if (stop.aborted) break
      const call = this.#call(server, `${server}-${index}`, giveUp).finally(() => underWay.delete(call))
      underWay.add(call)
    }
    await Promise.all(underWay)
  }

  async #call(server: string, intent: string, signal: Cancellation): Promise<OwnCall> {
    const call: OpenCall = {
      server,
      tool: TOOL,
      isHit: server === HIT,
      startedAt: this.#clock.now(),
      endedAt: undefined,
      ending: 'given up at the end',
    }
    this.#calls.push(call)
    const args = { city: 'example' }
    const { outcome } = await this.#gateway.call({ server, tool: TOOL, args, intent, signal })
    if (signal.aborted) return call
    call.endedAt = this.#clock.now()
    call.ending = endingOf(outcome)
    return call
  }
}

const NEVER = new Cancellation()

/** Returns one word for an outcome, the same as for a run over sockets. */
function endingOf(outcome: Outcome): string {
  if (outcome.kind !== 'answered') return `BW_${outcome.error.reason.toUpperCase()}`
  const { result, error } = outcome.result.value as {
    result?: { isError?: boolean }
    error?: { code: number }
  }
  if (error !== undefined) return `error ${error.code}`
  return result?.isError === true ? 'tool error' : 'result'
}
