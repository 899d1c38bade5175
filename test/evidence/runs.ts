import { RunIndex } from '../../src/evidence/run-index.ts'
import type { RunSummary } from '../../src/evidence/summary.ts'

const hour = 3_600_000

/** A summary of a passed run with 100 calls of the treatment; `at` hours after the epoch. */
export function summary(at = 0, more: Partial<RunSummary> = {}): RunSummary {
  return {
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
    by: 'ops',
    approver: null,
    approverProof: null,
    envelope: null,
    trust: null,
    targets: [{ server: 'search', tool: 'query', effect: 'read_only' }],
    load: { model: 'real', rate: null, concurrency: null },
    arms: [],
    faults: [
      {
        name: 'slow',
        type: 'conn.latency',
        planned: null,
        drawn: 50,
        applied: 50,
        notApplicable: 0,
        notReached: 0,
        masked: 40,
        delayed: 10,
        surfaced: 0,
        escaped: 0,
      },
    ],
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
  }
}

/** Writes an index of these runs to a state folder. */
export async function indexed(stateDir: string, runs: readonly RunSummary[]): Promise<void> {
  const { index } = await RunIndex.open(stateDir, 0)
  await index.addRuns(runs, 0)
  await index.close()
}
