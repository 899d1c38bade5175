import { randomBytes } from 'node:crypto'
import type { EndedRun } from '../../experiments/experiments.ts'
import type { RunRecord } from '../../experiments/guarded/record.ts'
import { addHandedIn, type HandedIn, type HandIn } from '../../evidence/hand-in.ts'
import { hostFacts } from '../../evidence/host.ts'
import { PlanStates } from '../../evidence/plan-states.ts'
import { RunIndex } from '../../evidence/run-index.ts'
import type { RunSummary } from '../../evidence/summary.ts'
import { type GatewayFacts, summaryOf } from '../../evidence/summary-of.ts'
import { summaryOfComparison } from '../../evidence/summary-of-comparison.ts'
import type { GameDayRecord } from '../../gamedays/record.ts'
import { summaryOfGameDay } from '../../gamedays/summary.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { Live } from '../../mesh/live.ts'
import { glob } from '../../mesh/match.ts'
import { version } from '../../protocol/identity.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { Log } from '../../telemetry/log.ts'

/** How long the end of the gateway waits for a hanging disk, in milliseconds. */
const CLOSE_MS: Millis = 5_000

/** Most targets in the summary of a comparison. */
const MOST_TARGETS = 64

export interface RunIndexParts {
  readonly clock: Clock
  readonly log: Log
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
  readonly stateDir: string
  readonly environment: string
}

/** The index of the gateway's runs. */
export interface GatewayRunIndex {
  /** The plans of the runs on disk. */
  readonly plans: PlanStates
  /** Adds an ended run to the index. Never rejects: a failed write is logged. */
  add(run: RunRecord): Promise<void>
  /** As `add`, for a GameDay that is over, with the records of its runs as far as these are kept. */
  addGameDay(record: GameDayRecord, runs: readonly RunRecord[]): Promise<void>
  /** Whether the index has a run or a GameDay. */
  has(id: string): boolean
  /** As `add`, for a comparison of policy sets. */
  addComparison(run: EndedRun): Promise<void>
  /** Adds a run that a client measured, for the holder of a credential. Never rejects. */
  handIn(document: HandIn, by: string): Promise<HandedIn>
  close(): Promise<void>
}

/** Opens the index, and adds the runs of the journal that the index lacks. Rejects when the folder cannot be used. */
export async function openRunIndex(
  earlier: readonly RunRecord[],
  parts: RunIndexParts,
): Promise<GatewayRunIndex> {
  const { clock, log, stateDir } = parts
  const plans = new PlanStates()
  const { index, problem } = await RunIndex.open(stateDir, clock.wall(), (run) => plans.add(run))
  if (problem !== undefined) log.warn({ stateDir, problem }, 'the index of runs is damaged')
  const bootId = randomBytes(8).toString('hex')
  const add = async (runs: readonly string[], summaries: () => readonly RunSummary[]) => {
    try {
      await index.addRuns(summaries(), clock.wall())
    } catch (error) {
      log.warn({ runs, problem: (error as Error).message }, 'runs could not be added to the index')
    }
  }
  const addGuarded = (runs: readonly RunRecord[]) =>
    add(
      runs.map(({ id }) => id),
      () => runs.map((run) => summaryOf(run, factsOf([run], bootId, parts))),
    )
  await addGuarded(earlier.filter(({ id }) => !index.has(id)))
  let lastHandIn: Promise<unknown> = Promise.resolve()
  return {
    plans,
    add: (run) => addGuarded([run]),
    addGameDay: (record, runs) =>
      add([record.id], () => [summaryOfGameDay(record, runs, factsOf(runs, bootId, parts))]),
    has: (id) => index.has(id),
    addComparison: (run) =>
      add([run.experiment.name], () => [summaryOfComparison(run, comparisonFacts(run, bootId, parts))]),
    handIn(document, by) {
      // One at a time: a repeat is answered once the first document is on disk.
      const receive = () => addHandedIn(index, document, { gateway: null, bootId, by, now: clock.wall() })
      const next = lastHandIn.then(receive)
      lastHandIn = next
      return next
    },
    async close() {
      const limit = new Cancellation()
      const late = clock.sleep(CLOSE_MS, limit).catch(() => undefined)
      await Promise.race([index.close(), late])
      limit.abort('closed')
    },
  }
}

function factsOf(runs: readonly RunRecord[], bootId: string, { live }: RunIndexParts): GatewayFacts {
  const { mesh } = live.current
  const names = new Set(runs.flatMap(({ targets }) => targets.servers.map(({ name }) => name)))
  return {
    ...commonFacts([...names], bootId, live.current),
    effectOf: (server, tool) => mesh.effectOf({ server, method: 'tools/call', tool }),
  }
}

function commonFacts(names: readonly string[], bootId: string, { servers }: GatewayGeneration) {
  const targets = names.flatMap((name) => servers.get(name) ?? [])
  const joined = (values: readonly string[]) => [...new Set(values)].sort().join('+') || 'unknown'
  return {
    version,
    gateway: null,
    bootId,
    replicas: 1,
    host: hostFacts(),
    era: joined(targets.flatMap(({ eras }) => eras.flatMap((era) => Object.keys(era)))),
    transport: joined(targets.map(({ config }) => config.type)),
  }
}

function comparisonFacts(run: EndedRun, bootId: string, { live, environment }: RunIndexParts) {
  const { servers, mesh, hash } = live.current
  const { match } = run.experiment
  const [isServer, isTool] = [glob(match.server ?? '*'), glob(match.tool ?? '*')]
  const names = [...servers.keys()].filter((name) => isServer(name))
  const targets = names.flatMap((server) =>
    servers
      .get(server)!
      .entries('tools')
      .flatMap(({ key: tool }) =>
        isTool(tool) ? [{ server, tool, effect: mesh.effectOf({ server, method: 'tools/call', tool }) }] : [],
      ),
  )
  return {
    ...commonFacts(names, bootId, live.current),
    environment,
    config: hash,
    targets: targets.slice(0, MOST_TARGETS),
  }
}
