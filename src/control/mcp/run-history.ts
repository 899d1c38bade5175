import type { RunRecord } from '../../experiments/guarded/record.ts'
import { roundedNumber } from './toon.ts'
import { quoted } from './untrusted.ts'

/** Limit for the number of listed runs. A further run replaces the oldest run. */
const MAX_RUNS = 1_000

/** A row in a list of runs. */
export interface RunRow {
  readonly run: string
  readonly plan: string
  readonly state: string
  readonly by: string
  readonly approver?: string
  readonly proved?: string
  readonly servers: readonly string[]
  readonly faults: readonly string[]
  /** Highest share of a played stage, in [0, 1]. */
  readonly share: number
  readonly injected: number
  readonly requestedAt: string
  readonly endedAt?: string
  /** The reason may quote agents and servers. */
  readonly untrusted: { readonly reason: string }
  readonly recoveredAfterMs?: number
  readonly recoveryLimitMs?: number
  readonly estimatesRight?: number
  readonly estimates?: number
}

export function rowOf(run: RunRecord): RunRow {
  const { recovery, estimates, endedAt, approver, proof } = run
  return {
    run: run.id,
    plan: run.name,
    state: run.state,
    by: run.actor,
    ...(approver !== undefined && { approver, proved: proof?.proved ?? 'claimed' }),
    servers: run.targets.servers.map(({ name }) => name),
    faults: [...new Set(run.spec.faults.map(({ type }) => type))],
    share: Math.max(0, ...run.stages.map(({ share }) => share)),
    injected: run.faults.reduce((sum, { injected }) => sum + injected, 0),
    requestedAt: new Date(run.requestedAt).toISOString(),
    ...(endedAt !== undefined && { endedAt: new Date(endedAt).toISOString() }),
    untrusted: { reason: quoted(run.reason) },
    ...(typeof recovery?.recoveredAfterMs === 'number' && { recoveredAfterMs: recovery.recoveredAfterMs }),
    ...(recovery !== undefined && { recoveryLimitMs: recovery.limitMs }),
    ...(estimates.length > 0 && {
      estimates: estimates.length,
      estimatesRight: estimates.filter(({ isRight }) => isRight).length,
    }),
  }
}

/** Returns data with four significant digits in each fraction: more digits tell nothing, and fill the answer. */
export function rounded<Data>(data: Data): Data {
  if (typeof data === 'number') return roundedNumber(data) as Data
  if (Array.isArray(data)) return data.map(rounded) as Data
  if (typeof data !== 'object' || data === null) return data
  return Object.fromEntries(Object.entries(data).map(([key, held]) => [key, rounded(held)])) as Data
}

/** The runs of this gateway, with the runs of earlier processes from the journal. */
export class RunHistory {
  readonly #rows = new Map<string, RunRow>()
  readonly #current: () => readonly RunRecord[]
  readonly #read: (id: string) => Promise<RunRecord | undefined>

  constructor(
    earlier: readonly RunRecord[],
    current: () => readonly RunRecord[],
    read: (id: string) => Promise<RunRecord | undefined>,
  ) {
    for (const run of earlier) this.over(run)
    this.#current = current
    this.#read = read
  }

  /** Called at the end of each run. */
  over(run: RunRecord): void {
    this.#rows.set(run.id, rowOf(run))
    if (this.#rows.size > MAX_RUNS) this.#rows.delete(this.#rows.keys().next().value!)
  }

  /** Returns all runs, the newest first. */
  list(): readonly RunRow[] {
    const all = new Map(this.#rows)
    for (const run of this.#current()) all.set(run.id, rowOf(run))
    return [...all.values()].sort((a, b) =>
      a.requestedAt === b.requestedAt ? 0 : a.requestedAt < b.requestedAt ? 1 : -1,
    )
  }

  /** Returns the record of a run, by its id or the name of its plan (the latest run). */
  async find(run: string): Promise<RunRecord | undefined> {
    // An id takes precedence over a name, because the name of a plan may equal the id of another run.
    const rows = this.list()
    const id = (rows.find((row) => row.run === run) ?? rows.find((row) => row.plan === run))?.run
    if (id === undefined) return undefined
    return this.#current().find((record) => record.id === id) ?? this.#read(id)
  }
}
