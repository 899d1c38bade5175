import { DAY_MS } from '../../src/evidence/period.ts'
import { RunIndex } from '../../src/evidence/run-index.ts'
import { runSummary, type RunSummary } from '../../src/evidence/summary.ts'

const hour = 3_600_000

/** Returns the first millisecond of a day of UTC. */
export const dayMs = (day: string): number => Date.parse(`${day}T00:00:00Z`)

/** Returns a fault of this type whose effects were masked. */
export const faultOf = (type: string, applied = 50): RunSummary['faults'][number] => ({
  name: type.replace('.', '-'),
  type,
  planned: null,
  drawn: applied,
  applied,
  notApplicable: 0,
  notReached: 0,
  masked: applied,
  delayed: 0,
  surfaced: 0,
  escaped: 0,
})

/** A summary of a run on a day of UTC; see `summary`. */
export const summaryOn = (id: string, day: string, more: Partial<RunSummary> = {}): RunSummary =>
  summary(0, { id, at: dayMs(day) + DAY_MS / 2, ...more })

/** A summary of a passed run with 100 calls of the treatment; `at` hours after the epoch. */
export function summary(at = 0, more: Partial<RunSummary> = {}): RunSummary {
  return runSummary.parse({
    format: 1,
    id: `run-${at}`,
    kind: 'guarded',
    name: 'drill',
    plan: 'plan',
    shape: 'shape',
    at: at * hour,
    tookMs: 60_000,
    version: '0.1.0',
    gateway: null,
    bootId: 'boot',
    environment: 'staging',
    replicas: 1,
    hashes: { config: 'c', policies: 'p', faults: 'f', targets: 't', load: 'l' },
    seed: '1',
    host: { class: 'host', cpu: 'cpu', cores: 2, memoryBytes: 8, node: '20.19.0', container: false },
    era: 'modern',
    transport: 'http',
    measuredBy: 'gateway',
    document: null,
    by: 'ops',
    approver: null,
    approverProof: null,
    envelope: null,
    trust: null,
    targets: [{ server: 'search', tool: 'query', effect: 'read_only' }],
    load: { model: 'real', rate: null, concurrency: null },
    arms: [],
    faults: [faultOf('conn.latency')],
    windows: [
      {
        phase: 'stage',
        stage: 0,
        arm: 'treatment',
        fromMs: 0,
        toMs: 60_000,
        calls: 100,
        good: 100,
        failed: 0,
        wrong: null,
        cells: [[200, 100]],
      },
    ],
    transitions: [],
    recoveries: [],
    claims: [],
    estimates: [],
    rto: { promisedMs: null, measuredMs: null },
    everyMs: null,
    state: 'completed',
    verdict: 'passed',
    reasons: [],
    share: 0.5,
    ...more,
  })
}

/** Writes an index of these runs to a state folder. */
export async function indexed(stateDir: string, runs: readonly RunSummary[]): Promise<void> {
  const { index } = await RunIndex.open(stateDir, 0)
  await index.addRuns(runs, 0)
  await index.close()
}
