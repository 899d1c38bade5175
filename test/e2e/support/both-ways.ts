import { join } from 'node:path'
import type { DecisionEntry, JournalEntry } from '../../../src/chaos/journal/entry.ts'
import { config as configSchema } from '../../../src/config/schema/schema.ts'
import { modernise } from '../../../src/downstream/modern/call.ts'
import { respond } from '../../../src/downstream/respond.ts'
import { resultOfCall } from '../../../src/mesh/classify.ts'
import { type Millis, systemClock } from '../../../src/mesh/clock.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import type { Seed } from '../../../src/mesh/keyed-random.ts'
import { parseJson } from '../../../src/protocol/jsonrpc.ts'
import { INTENT_KEY, STEP_KEY } from '../../../src/protocol/task.ts'
import { type Asked, type Ended, SimulatedGateway } from '../../../src/sim/gateway.ts'
import { readRecording } from '../../../src/sim/recording.ts'
import type { ServerModel } from '../../../src/sim/servers.ts'
import { VirtualClock } from '../../../src/sim/virtual-clock.ts'
import { createAccessLog } from '../../../src/telemetry/access-log.ts'
import type { RecordedAttempt } from '../../../src/telemetry/recording/format.ts'
import { recordedLog } from '../../support/log.ts'
import { discovered } from '../../support/modern.ts'
import { until } from '../../support/until.ts'
import { Gateway, type Json, newFolder } from './gateway.ts'
import { headersOf, metaOf } from './modern-client.ts'
import { post } from './raw-client.ts'
import { RawServer, sendResult } from './raw-server.ts'

/** The same calls for a live gateway and for a simulated gateway. */
export interface Traffic {
  readonly servers: Readonly<Record<string, ServerModel>>
  readonly policies: Json
  /** The plan: `seed` and `faults` of the block `chaos`. */
  readonly plan: Json
  readonly calls: readonly Asked[]
  /** Minimum interval between the starts of two calls, in milliseconds. Default: none. */
  readonly paceMs?: Millis
}

export interface Answer {
  /** Undefined when the connection broke. */
  readonly status: number | undefined
  /** The response without its id, or an invalid reply as text. */
  readonly body: unknown
}

/** Everything observable about a run. */
export interface Run {
  readonly decisions: readonly DecisionEntry[]
  readonly answers: readonly Answer[]
  /** Access log lines, without rejected calls: the log limits rejections per second. */
  readonly lines: readonly Json[]
  readonly runs: Readonly<Record<string, number>>
}

/** Times by the gateway's own clock. */
export interface CallTimes {
  /** Arrival of the call, in milliseconds after the faults were armed. */
  readonly at: Millis
  readonly attempts: readonly RecordedAttempt[]
}

/** A run over sockets, with the times of each call. */
export interface LiveRun extends Run {
  readonly times: readonly CallTimes[]
}

/** Plays the traffic in sequence over sockets: real servers, and a gateway in its own process. */
export async function live({
  servers: models,
  policies,
  plan,
  calls,
  paceMs = 0,
}: Traffic): Promise<LiveRun> {
  const file = join(await newFolder(), 'calls.jsonl')
  const runs: Record<string, number> = {}
  const mcpServers: Record<string, Json> = {}
  for (const [name, model] of Object.entries(models)) {
    runs[name] = 0
    const { url } = await serve(model, () => runs[name]!++)
    mcpServers[name] = { url, era: 'modern', trusted: true }
  }
  const gateway = await Gateway.start({
    // The agent retries at once, so the gateway must not hold its rejections.
    gateway: { environment: 'test', limits: { rejectionPause: 0 } },
    servers: mcpServers,
    policies,
    chaos: { enabled: true, strict: true, ...plan },
    telemetry: { accessLog: { sample: 1 }, recording: { file } },
  })
  await gateway.waitFor('up', ...Object.keys(models))
  // Numbered like the calls of a simulated gateway.
  let id = 0
  for (const asked of firstCalls(models)) await ask(gateway.mcp(asked.server), asked, ++id)
  await until('all schemas are compiled', async () => {
    return (await gateway.metric('breakwater_schemas', 'state="waiting"')) === 0
  })
  await systemClock.sleep(REST_MS, NEVER)
  await gateway.post('/admin/chaos/arm')
  const answers: Answer[] = []
  const startedAt = systemClock.now()
  for (const [index, asked] of calls.entries()) {
    const waitMs = startedAt + index * paceMs - systemClock.now()
    if (waitMs > 0) await systemClock.sleep(waitMs, NEVER)
    answers.push(await ask(gateway.mcp(asked.server), asked, ++id))
  }
  const logged = () => linesOf(gateway.log)
  const told = firstCalls(models).length + answers.filter((answer) => !isRejected(answer)).length
  await until(`${told} calls are logged`, () => logged().length >= told)
  const decisions = await decisionsOf(gateway)
  gateway.program.signal('SIGTERM')
  await gateway.program.ended
  const times = await timesIn(file, firstCalls(models).length, decisions)
  return { decisions, answers, lines: logged(), runs, times }
}

/** Returns the recorded times of the calls after the first calls. */
async function timesIn(
  file: string,
  first: number,
  decisions: readonly DecisionEntry[],
): Promise<CallTimes[]> {
  const { calls, notes } = await readRecording(file)
  if (notes.length > 0) throw new Error(notes.join())
  const recorded = calls.slice(first)
  // A decision follows the start of its attempt at once or a moment later, so the quickest decision shows when the
  // faults were armed.
  const armedAt = decisions.reduce((latest, decision) => {
    const { attempt, sinceMs } = decision
    const { at, attempts, tool } = recorded[placeIn(decision.call.id, first)]!
    if (tool !== decision.call.tool) throw new Error(`${decision.call.id} is no call of ${tool}`)
    const began = attempts.find(({ number }) => number === attempt)
    return began === undefined ? latest : Math.max(latest, at + began.at - sinceMs)
  }, -Infinity)
  return recorded.map(({ at, attempts }) => ({ at: at - armedAt, attempts }))
}

/** Returns a call's index after the first calls, by its id: both gateways number calls from 1. */
export const placeIn = (id: unknown, first: number): number => Number(id) - 1 - first

/**
 * One call of each tool before any fault is armed, to compile its schemas. Until then replies go unchecked, for a time
 * that depends on the machine.
 */
const firstCalls = (servers: Traffic['servers']): Asked[] =>
  Object.entries(servers).flatMap(([server, { tools }]) =>
    Object.keys(tools).map((tool) => ({ server, tool, args: { id: 0 }, intent: 'first' })),
  )

/** Pause before arming faults, in milliseconds: rate limits refill, and a simulated gateway compiles all schemas. */
const REST_MS = 1_000

/** Starts an HTTP server with the model's tools, which take no time; calls `onRun` for each run. */
function serve({ tools }: ServerModel, onRun: () => void): Promise<RawServer> {
  const listed = Object.entries(tools).map(
    ([name, { inputSchema = { type: 'object' }, outputSchema, effect = 'read_only' }]) => ({
      name,
      inputSchema,
      outputSchema,
      annotations: { readOnlyHint: effect === 'read_only' },
    }),
  )
  return RawServer.start(({ message: { id, method, params } }, response) => {
    if (method === 'tools/call') onRun()
    const result = resultOf(method, params as Json)
    if (result === undefined) return false
    return sendResult(response, id, result)
  })

  function resultOf(method: unknown, { name, arguments: args }: Json = {}): Json | undefined {
    switch (method) {
      case 'server/discover':
        return discovered
      case 'tools/list':
        return { resultType: 'complete', ttlMs: 0, cacheScope: 'private', tools: listed }
      case 'tools/call':
        return { content: [], structuredContent: tools[String(name)]!.answer(args as Json) }
      default:
        return undefined
    }
  }
}

async function ask(
  url: string,
  { tool, args, intent, step, tenant = 'default' }: Asked,
  id: number,
): Promise<Answer> {
  const _meta = { ...metaOf(), [INTENT_KEY]: intent, ...(step !== undefined && { [STEP_KEY]: step }) }
  const request = { jsonrpc: '2.0', id, method: 'tools/call', params: { name: tool, arguments: args, _meta } }
  const headers = { ...headersOf(request), 'x-breakwater-tenant': tenant }
  return post(url, JSON.stringify(request), headers).then(
    ({ status, text }) => answerOf(status, text),
    () => BROKEN,
  )
}

const BROKEN: Answer = { status: undefined, body: undefined }

function answerOf(status: number, text: string): Answer {
  const { id: _, ...body } = (parseJson(text) ?? {}) as Json
  return { status, body: Object.keys(body).length === 0 ? text : body }
}

/** Returns the machine-readable part of the gateway's errors. */
export const dataOf = ({ body }: Answer): Json | undefined =>
  (body as { error?: { data?: Json } } | undefined)?.error?.data

export const isRejected = (answer: Answer): boolean => dataOf(answer)?.by !== undefined

async function decisionsOf(gateway: Gateway): Promise<DecisionEntry[]> {
  interface Page {
    readonly entries: readonly JournalEntry[]
    readonly next: number
    readonly more: boolean
  }
  const decisions: DecisionEntry[] = []
  for (let since = 0, more = true; more;) {
    const { body } = await gateway.admin<Page>(`/admin/chaos/journal?limit=1000&since=${since}`)
    decisions.push(...body.entries.filter((entry) => entry.kind === 'decision'))
    since = body.next
    more = body.more
  }
  return decisions
}

/** Returns the access log without random values and times. */
function linesOf(log: readonly Json[]): Json[] {
  return log
    .filter(({ msg, rejectedBy }) => msg === 'call' && rejectedBy === undefined)
    .map((line) => Object.fromEntries(Object.entries(line).filter(([key]) => !OF_CHANCE.has(key))))
}

const OF_CHANCE = new Set(
  'level time pid hostname requestId durationMs overheadMs waitedMs traceId spanId leftOut'.split(' '),
)

/**
 * Plays the traffic in virtual time. `seed` feeds the policies' random draws. With `times`, each call comes at its
 * recorded time; the durations of tools are the traffic's.
 */
export async function simulated(
  traffic: Traffic,
  seed: Seed,
  times?: readonly Pick<CallTimes, 'at'>[],
): Promise<Run> {
  const { servers, plan, calls, paceMs = 0 } = traffic
  const { policies, chaos } = configSchema.parse({ policies: traffic.policies, chaos: plan })
  const clock = new VirtualClock()
  const { log, lines } = recordedLog()
  // Each line gets another second, so no line is dropped by the limit per second.
  let seconds = 0
  const unhurried = Object.assign(new VirtualClock(), { now: () => 1_000 * seconds++ })
  const accessLog = createAccessLog({ sample: 1 }, { log, clock: unhurried })
  const gateway = new SimulatedGateway({
    clock,
    seed,
    servers,
    policies,
    keepsMisses: true,
    onCall: (call, outcome) => accessLog(call, outcome, resultOfCall(outcome, call.record), 0, 0),
  })
  const answers: Answer[] = []
  async function play(): Promise<void> {
    for (const asked of firstCalls(servers)) await gateway.call(asked)
    await clock.sleep(REST_MS, NEVER)
    gateway.arm(chaos)
    const startedAt = clock.now()
    for (const [index, asked] of calls.entries()) {
      const waitMs = startedAt + (times?.[index]?.at ?? index * paceMs) - clock.now()
      if (waitMs > 0) await clock.sleep(waitMs, NEVER)
      answers.push(written(await gateway.call(asked), gateway))
    }
  }
  await clock.run(play())
  const runs = Object.fromEntries([...gateway.servers].map(([name, server]) => [name, server.runs]))
  // In the form the admin API gives.
  const decisions = JSON.parse(JSON.stringify(gateway.journal.decisions())) as DecisionEntry[]
  return { decisions, answers, lines: linesOf(lines), runs }
}

/** Returns the gateway's reply to a modern agent. */
function written({ call, outcome }: Ended, { mesh }: SimulatedGateway): Answer {
  if (outcome.wire?.end !== undefined) return BROKEN
  const response = respond(call.id, outcome, call, { effectOf: () => mesh.effectOf(call) })
  const { status, text, wire } = modernise(call.method, call.id, response)
  return answerOf(wire?.status ?? status, wire?.body ?? text)
}

const NEVER = new Cancellation()
