import { DAY_MS } from '../../src/evidence/period.ts'
import { runSummary, type RunSummary } from '../../src/evidence/summary.ts'

/** Returns the first millisecond of a day of UTC. */
export const dayMs = (day: string): number => Date.parse(`${day}T00:00:00Z`)

type Fault = RunSummary['faults'][number]

export const faultOf = (type: string, applied = 40): Fault => ({
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

/** Returns a run that passed: a guarded run of 42 s with delays, in staging. */
export function summaryOf(id: string, day: string, more: Partial<RunSummary> = {}): RunSummary {
  return runSummary.parse({
    format: 1,
    id,
    kind: 'guarded',
    name: 'latency of search',
    plan: 'p',
    shape: 's',
    at: dayMs(day) + DAY_MS / 2,
    tookMs: 42_000,
    version: '0.1.0',
    gateway: 'gw-1',
    bootId: 'boot-1',
    environment: 'staging',
    replicas: 1,
    hashes: { config: 'c', policies: 'p', faults: 'f', targets: 't', load: 'l' },
    seed: '42',
    host: { class: 'h', cpu: 'x', cores: 2, memoryBytes: 4e9, node: 'v20', container: false },
    era: 'legacy',
    transport: 'http',
    by: 'alice',
    approver: null,
    approverProof: null,
    envelope: null,
    trust: null,
    targets: [{ server: 'search', tool: 'query', effect: 'read_only' }],
    load: { model: 'real', rate: null, concurrency: null },
    arms: [],
    faults: [faultOf('conn.latency')],
    windows: [],
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
