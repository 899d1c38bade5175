import { reasonNames, verdicts } from '../../src/evidence/verdict-names.ts'
import type { RunSummary } from '../../src/evidence/summary.ts'

const AT = Date.UTC(2026, 2, 1)

/** Returns the summary of run number n: every field of a table occurs, and half of the runs have nulls. */
export function tableRun(n: number): RunSummary {
  const isBare = n % 2 === 1
  const kind = isBare ? 'scenario' : 'comparison'
  const arms = ['control', 'treatment']
  const windows = arms.flatMap((arm) =>
    [0, 1].map((stage) => ({
      phase: 'stage',
      stage: isBare ? null : stage,
      arm,
      fromMs: stage * 30_000,
      toMs: stage * 30_000 + 29_999.5,
      calls: 400,
      good: 390 - (n % 7),
      failed: 10 + (n % 7),
      wrong: isBare ? null : 2,
      // The cells come in no order.
      cells: isBare && stage === 1 ? [] : Array.from({ length: 25 }, (_, at) => cellAt(at, n)).reverse(),
    })),
  )
  return {
    format: 1,
    id: `run-${String(n).padStart(6, '0')}`,
    kind,
    name: `the run "${n % 50}", ünï\ncode`,
    plan: `plan${n % 50}`,
    shape: `shape${n % 20}`,
    at: AT + n * 600_000 + 0.25,
    tookMs: 60_000.5,
    version: '0.1.0',
    gateway: isBare ? null : 'gateway-1',
    bootId: isBare ? null : `boot-${n % 9}`,
    environment: n % 3 === 0 ? 'production' : 'staging',
    replicas: 1,
    hashes: { config: 'c1', policies: 'p1', faults: 'f1', targets: 't1', load: 'l1' },
    seed: isBare ? null : '42',
    host: {
      class: 'h1',
      cpu: 'a processor',
      cores: 8,
      memoryBytes: 64 * 1024 ** 3,
      node: 'v22.12.0',
      container: !isBare,
    },
    era: '2025-06-18',
    transport: 'stdio',
    measuredBy: isBare ? 'client' : 'gateway',
    document: isBare ? 'd'.repeat(64) : null,
    by: 'ci',
    approver: isBare ? null : 'ann',
    approverProof: isBare ? null : 'signature',
    envelope: isBare ? null : 'weekdays',
    trust: isBare ? null : 'trusted',
    targets: [{ server: 'files', tool: 'read', effect: 'read' }],
    load: isBare
      ? { model: 'closed', rate: null, concurrency: 4 }
      : { model: 'open', rate: 12.5, concurrency: null },
    arms: arms.map((name) => ({
      name,
      set: name === 'control' ? 'default' : 'retries',
      calls: 800,
      good: 780,
      wrong: isBare ? null : 4,
      rejected: 1,
      unjudged: 0,
      attempts: 850,
    })),
    faults: [
      {
        name: 'slow',
        type: 'latency',
        planned: isBare ? null : 100,
        drawn: 90,
        applied: 80,
        notApplicable: 5,
        notReached: 5,
        masked: 40,
        delayed: 20,
        surfaced: 15,
        escaped: 5,
      },
    ],
    windows,
    transitions: [{ atMs: 1_500.5, layer: 'breaker', name: 'files', from: 'closed', to: 'open' }],
    recoveries: [{ layer: 'breaker', name: 'files', ms: 900.25, censored: isBare }],
    claims: [
      {
        text: 'retries help',
        value: isBare ? null : 0.125,
        low: isBare ? null : -0.5,
        high: isBare ? null : 0.5,
        n: 800,
        status: 'held',
      },
    ],
    estimates: [{ of: 'failures', expected: '10', found: '11', right: !isBare }],
    rto: { promisedMs: isBare ? null : 1_000, measuredMs: isBare ? null : 900.25 },
    everyMs: isBare ? null : 604_800_000,
    state: 'ended',
    verdict: verdicts[n % verdicts.length]!,
    reasons: isBare ? [] : [reasonNames[0]],
    share: isBare ? null : 0.5,
  }
}

const cellAt = (at: number, n: number): [number, number] => [100 + at * 3 + (n % 5), 16]

/** Returns the summaries of the first runs. */
export const tableRuns = (count: number): readonly RunSummary[] =>
  Array.from({ length: count }, (_, n) => tableRun(n))
