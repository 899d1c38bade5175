import type { Config } from '../config/schema/schema.ts'
import { type Cancel, type Clock, type Millis, nextTurn } from '../mesh/clock.ts'
import type { Server } from '../registry/server.ts'
import type { Log } from '../telemetry/log.ts'
import { endSupervisor } from '../upstreams/stdio/groups.ts'
import type { Agents } from './agents.ts'
import type { Reloader } from './reload.ts'

/** As much of a plane as its end needs. */
interface EndingPlane {
  /** Takes no new connections, and says when the last one has ended. */
  stopListening(ended: () => void): void
  closeIdleConnections(): void
  close(): PromiseLike<unknown>
}

/** As much of a generation as its end needs. */
interface EndingGeneration {
  readonly config: { readonly gateway: Pick<Config['gateway'], 'drain'> }
  readonly servers: ReadonlyMap<string, Pick<Server, 'name' | 'processes' | 'close'>>
}

export interface ShutdownParts {
  readonly dataPlane: EndingPlane
  readonly controlPlane: Pick<EndingPlane, 'close'>
  readonly live: { readonly current: EndingGeneration; readonly open: readonly EndingGeneration[] }
  readonly agents: Pick<Agents, 'close'>
  /** Faults end first: what they hold back has to be let go. */
  readonly chaos: { stop(): Promise<void>; close(): Promise<void> }
  /** Rejections that are held back end as well; replies that are on their way have the time of the drain. */
  readonly guards: { readonly tarpit: { close(): void }; readonly unread: { readonly isAny: boolean } }
  /** Once servers are ended none begins. */
  readonly reloader: Pick<Reloader, 'close'>
  /** Spans that are left are sent, as far as the collector takes them. */
  readonly tracing: { close(): Promise<void> } | undefined
  /** The last metrics are sent, as far as the collector takes them. */
  readonly metricsExport: { close(): Promise<void> }
  /** The notes on recorded calls are written down. */
  readonly recorder: { close(): Promise<void> }
  /** Told last of the ends of calls; undefined where nothing outlives the process. */
  readonly durable: { close(): Promise<void> } | undefined
  /** All incidents are written down, and nobody is told any more. */
  readonly health: { close(): Promise<void> }
  /** Calls that became MCP tasks count by what is known of them. */
  readonly taskCalls: { closeAll(): void }
  /** Tasks of agents end with the process, and so do experiments. */
  readonly intents: { closeAll(): void }
  readonly experiments: { close(): void }
  readonly endStallWatch: () => void
  /** While the control plane's address is still ours. */
  readonly removeToken: () => Promise<void>
  /** Requests of agents that are under way, and calls that go on though their agents have left. */
  readonly load: { readonly inFlight: number; readonly detached: number }
  readonly clock: Clock
  readonly log: Log
}

/** How often the drain looks whether calls are still under way, in milliseconds. */
const LOOK_MS: Millis = 50

/**
 * Longest end after the drain, in milliseconds: servers that ignore the end of their input and SIGTERM take 2.5 s, what they have
 * left outside of their process groups half a second more, spans whose collector is silent 3 s. What takes longer is left to
 * the end of the process, which ends its children.
 */
const LONGEST_END_MS: Millis = 5_000

/** How long calls that were ended may take to answer their agents, in milliseconds; and how many looks are taken at least, as a busy loop looks late. */
const ANSWER_GRACE_MS: Millis = 500
const ANSWER_LOOKS = 10

/** How often the end says what it waits for, in milliseconds. */
const SAY_MS: Millis = 1_000

/**
 * Ends a gateway in the order that hurts least: no new connections, calls in flight, sessions, children, the rest. After the
 * drain all that does not need one another ends at the same time: nobody's time of grace begins when another's is over.
 */
export async function shutDown(parts: ShutdownParts): Promise<void> {
  const { dataPlane, live, load, log, clock } = parts
  const { drain } = live.current.config.gateway
  // First, because connections whose replies faults hold back would be taken for idle ones.
  const faultsOver = parts.chaos.stop()
  parts.guards.tarpit.close()
  const stopped = new Promise<void>((resolve) => dataPlane.stopListening(resolve))
  log.info(
    { inFlight: load.inFlight, detached: load.detached, drainMs: drain },
    'stopping: calls in flight may finish',
  )
  await faultsOver
  await drained(parts, drain)
  if (isBusy(parts)) {
    const { inFlight, detached } = load
    const repliesUnread = parts.guards.unread.isAny
    log.warn({ inFlight, detached, repliesUnread }, 'the drain is over: ending calls in flight')
  }
  dataPlane.closeIdleConnections()
  const waits = new Waits()
  const cancelSay = repeatedly(clock, () => log.info({ waitingFor: waits.names }, 'stopping: still waiting'))
  let cancelLimit: Cancel | undefined
  const limit = new Promise<'late'>((resolve) => {
    cancelLimit = clock.after(LONGEST_END_MS, () => resolve('late'))
  })
  const how = await Promise.race([endAll(parts, stopped, waits), limit]).finally(() => {
    cancelSay()
    cancelLimit?.()
  })
  const left = { waitingFor: waits.names, limitMs: LONGEST_END_MS }
  if (how === 'late') log.warn(left, 'the shutdown takes too long: ending without what it waits for')
  log.info('stopped')
}

async function endAll(parts: ShutdownParts, stopped: Promise<void>, waits: Waits): Promise<void> {
  const { dataPlane, controlPlane, live, agents, tracing, durable, clock } = parts
  parts.reloader.close()
  // Calls end here and now, with an error that says why; their sessions are told to the servers while those still run.
  const sessions = waits.note('the sessions of agents', agents.close())
  // Includes the servers of older configs, whose last calls have not ended.
  const servers = new Set(live.open.flatMap((generation) => [...generation.servers.values()]))
  const upstreamSessions = [...servers].map((server) =>
    waits.note(() => nameOf(server.name, server.processes), server.close()),
  )
  // Spans and answers of the calls that were ended come first.
  const answered = drained(parts, ANSWER_GRACE_MS, ANSWER_LOOKS).then(nextTurn)
  const spans = answered.then(() => {
    parts.taskCalls.closeAll()
    parts.intents.closeAll()
    parts.experiments.close()
    return Promise.all([
      waits.note('the collector of spans', tracing?.close() ?? Promise.resolve()),
      waits.note('the collector of metrics', parts.metricsExport.close()),
    ])
  })
  const rest = Promise.all([sessions, ...upstreamSessions, parts.removeToken(), answered]).then(() =>
    Promise.all([
      waits.note('the ports', Promise.all([dataPlane.close(), controlPlane.close(), stopped])),
      waits.note('what servers have left behind', endSupervisor(clock)),
    ]),
  )
  // Nothing of it is waited for alone: what fails meanwhile fails the end, and is no rejection that nobody handles.
  await Promise.all([spans, rest])
  parts.endStallWatch()
  await waits.note('the journal of faults', parts.chaos.close())
  await waits.note('the recording', parts.recorder.close())
  await waits.note('incidents', parts.health.close())
  if (durable !== undefined) await waits.note('the store on disk', durable.close())
}

/** The tasks that the shutdown waits for, by name. */
class Waits {
  readonly #open = new Set<() => string>()

  get names(): string[] {
    return [...this.#open].map((name) => name())
  }

  note<T>(name: string | (() => string), ending: Promise<T>): Promise<T> {
    const entry = typeof name === 'string' ? () => name : name
    this.#open.add(entry)
    return ending.finally(() => this.#open.delete(entry))
  }
}

function nameOf(server: string, processes: number | undefined): string {
  return processes === undefined ? `server ${server}` : `server ${server} (processes: ${processes})`
}

function repeatedly(clock: Clock, say: () => void): Cancel {
  let cancel = clock.after(SAY_MS, function again() {
    say()
    cancel = clock.after(SAY_MS, again)
  })
  return () => cancel()
}

/** Waits until nothing is under way, for `limitMs` at most, or for as long as so many looks take. */
async function drained(parts: ShutdownParts, limitMs: Millis, leastLooks = 0): Promise<void> {
  const { clock } = parts
  const never = new AbortController().signal
  const until = clock.now() + limitMs
  for (let looks = 0; isBusy(parts) && (clock.now() < until || looks < leastLooks); looks++)
    await clock.sleep(LOOK_MS, never)
}

/** Whether a call is under way, or its reply. */
function isBusy({ load: { inFlight, detached }, guards }: ShutdownParts): boolean {
  return inFlight + detached > 0 || guards.unread.isAny
}
