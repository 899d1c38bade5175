import type { Config } from '../config/schema/schema.ts'
import { type Cancel, type Clock, type Millis, nextTurn } from '../mesh/clock.ts'
import type { Server } from '../registry/server.ts'
import type { Log } from '../telemetry/log.ts'
import { endSupervisor } from '../upstreams/stdio/groups.ts'
import type { Agents } from './agents.ts'
import type { Reloader } from './reload.ts'

interface EndingPlane {
  /** Refuses new connections; calls `ended` after the last connection has ended. */
  stopListening(ended: () => void): void
  closeIdleConnections(): void
  close(): PromiseLike<unknown>
}

interface EndingGeneration {
  readonly config: { readonly gateway: Pick<Config['gateway'], 'drain'> }
  readonly servers: ReadonlyMap<string, Pick<Server, 'name' | 'processes' | 'close'>>
}

export interface ShutdownParts {
  readonly dataPlane: EndingPlane
  readonly controlPlane: Pick<EndingPlane, 'close'>
  readonly live: { readonly current: EndingGeneration; readonly open: readonly EndingGeneration[] }
  readonly agents: Pick<Agents, 'close'>
  /** Ends all faults. Called first, so that delayed calls and replies continue. */
  readonly chaos: { stop(): Promise<void>; close(): Promise<void> }
  /** Ends the delays of rejections, and tells if replies are still being sent. The drain waits for these replies. */
  readonly guards: { readonly tarpit: { close(): void }; readonly unread: { readonly isAny: boolean } }
  /** Closed before the servers, so that no reload starts a server afterwards. */
  readonly reloader: Pick<Reloader, 'close'>
  /** The tracing; `close` sends the last spans. Undefined when tracing is off. */
  readonly tracing: { close(): Promise<void> } | undefined
  /** The export of metrics; `close` sends the last metrics. */
  readonly metricsExport: { close(): Promise<void> }
  /** Writes the remaining records of calls. */
  readonly recorder: { close(): Promise<void> }
  /** The store, closed last because ending calls still write records; undefined without a store. */
  readonly durable: { close(): Promise<void> } | undefined
  /** Writes all incidents, and ends webhook notices. */
  readonly health: { close(): Promise<void> }
  /** Counts the calls that became MCP tasks by their current state. */
  readonly taskCalls: { closeAll(): void }
  /** Counts the open tasks of agents as finished. */
  readonly intents: { closeAll(): void }
  readonly experiments: { close(): void }
  readonly endStallWatch: () => void
  /** Removes the token files. Called before the control plane closes, while no other gateway can have the address. */
  readonly removeToken: () => Promise<void>
  /** Agents' requests in flight, and calls in progress whose agents have left. */
  readonly load: { readonly inFlight: number; readonly detached: number }
  readonly clock: Clock
  readonly log: Log
}

/** Poll interval of the drain, in milliseconds. */
const LOOK_MS: Millis = 50

/**
 * Timeout after the drain, in milliseconds. Servers that ignore EOF and SIGTERM take 2.5 s. Their processes outside of
 * the process group take 0.5 s more, and a silent collector of spans takes 3 s. After the timeout the gateway exits,
 * and its exit ends the remaining child processes.
 */
const LONGEST_END_MS: Millis = 5_000

/**
 * Time for ended calls to answer their agents, in milliseconds, and minimum number of polls, because a busy event loop
 * polls late.
 */
const ANSWER_GRACE_MS: Millis = 500
const ANSWER_LOOKS = 10

/** Interval between log lines about pending steps, in milliseconds. */
const SAY_MS: Millis = 1_000

/**
 * Shuts down the gateway: refuses new connections, waits for calls in flight, then ends sessions, child processes and
 * the other parts. After the drain, independent parts end in parallel, so their timeouts do not add up. Resolves after
 * the drain plus `LONGEST_END_MS` at the latest.
 */
export async function shutDown(parts: ShutdownParts): Promise<void> {
  const { dataPlane, live, load, log, clock } = parts
  const { drain } = live.current.config.gateway
  // Ends faults before `stopListening`: a connection whose reply a fault delays would look idle.
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
  if (how === 'late') log.warn(left, 'the shutdown takes too long: exiting without waiting for the rest')
  log.info('stopped')
}

async function endAll(parts: ShutdownParts, stopped: Promise<void>, waits: Waits): Promise<void> {
  const { dataPlane, controlPlane, live, agents, tracing, durable, clock } = parts
  parts.reloader.close()
  // Ends calls at once with an error. Closes sessions before servers, so that servers are told of the end.
  const sessions = waits.note('the sessions of agents', agents.close())
  // Includes servers of older configs with calls in flight.
  const servers = new Set(live.open.flatMap((generation) => [...generation.servers.values()]))
  const upstreamSessions = [...servers].map((server) =>
    waits.note(() => nameOf(server.name, server.processes), server.close()),
  )
  // Waits until ended calls have sent their answers and made their spans.
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
      waits.note('stray processes of servers', endSupervisor(clock)),
    ]),
  )
  // Awaits both together; otherwise a rejection of one promise would be unhandled while the other is awaited.
  await Promise.all([spans, rest])
  parts.endStallWatch()
  await waits.note('the journal of faults', parts.chaos.close())
  await waits.note('the recording', parts.recorder.close())
  await waits.note('incidents', parts.health.close())
  if (durable !== undefined) await waits.note('the store on disk', durable.close())
}

/** The pending steps of the shutdown, by name. */
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

/** Waits until no call is in flight. Gives up after `limitMs`, but not before `leastLooks` polls. */
async function drained(parts: ShutdownParts, limitMs: Millis, leastLooks = 0): Promise<void> {
  const { clock } = parts
  const never = new AbortController().signal
  const until = clock.now() + limitMs
  for (let looks = 0; isBusy(parts) && (clock.now() < until || looks < leastLooks); looks++)
    await clock.sleep(LOOK_MS, never)
}

/** True while a call is in flight or a reply is being sent. */
function isBusy({ load: { inFlight, detached }, guards }: ShutdownParts): boolean {
  return inFlight + detached > 0 || guards.unread.isAny
}
