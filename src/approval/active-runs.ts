import type { GuardedExperiments } from '../experiments/guarded/guarded.ts'
import { isOver, type RunRecord, type Targets } from '../experiments/guarded/record.ts'
import type { Spec, SpecFault } from '../experiments/guarded/spec.ts'
import type { Agent } from './agent.ts'
import { digestOf } from './digest.ts'
import type { DurableBook } from './durable-book.ts'
import type { HitTool } from './envelope.ts'
import { type Envelopes, faultDigest } from './envelopes.ts'
import { type Refusal, refusal } from './refusal.ts'
import type { RunHasher } from './run-hashes.ts'

/** An active run of an agent. */
export interface ActiveRun {
  /** The envelope that covers the run. Undefined: a person approved the run. */
  readonly envelope: string | undefined
  readonly hit: readonly HitTool[]
  readonly spec: Spec
}

/** A start whose run has not begun yet. */
export interface Starting {
  /** Name of the plan. */
  readonly name: string
  /** The agent that stopped the run before it began. */
  stoppedBy?: string
}

/** The runs that agents began, until their end. */
export class ActiveRuns {
  readonly #runs: Pick<GuardedExperiments, 'stop' | 'get' | 'list'>
  readonly #book: DurableBook
  readonly #envelopes: Envelopes
  readonly #hasher: RunHasher
  /** Active runs by run id. */
  readonly #active = new Map<string, ActiveRun>()
  readonly #starting = new Set<Starting>()

  constructor(parts: {
    readonly runs: Pick<GuardedExperiments, 'stop' | 'get' | 'list'>
    readonly book: DurableBook
    readonly envelopes: Envelopes
    readonly hasher: RunHasher
  }) {
    this.#runs = parts.runs
    this.#book = parts.book
    this.#envelopes = parts.envelopes
    this.#hasher = parts.hasher
  }

  /** Notes a start, so that `stop` also stops a run that has not begun. Call `begun` at the end of the start. */
  starting(name: string): Starting {
    const starting = { name }
    this.#starting.add(starting)
    return starting
  }

  begun(starting: Starting): void {
    this.#starting.delete(starting)
  }

  add(id: string, run: ActiveRun): void {
    this.#active.set(id, run)
  }

  /** Records a run that could not begin as failed. The used approval, or the used budget, stays used. */
  failed(id: string): void {
    const known = this.#active.get(id)
    if (known === undefined) return
    this.#active.delete(id)
    this.#book.over({ kind: 'over', run: id, state: 'failed', envelope: known.envelope, reached: [] })
  }

  /**
   * Called at the end of each run. A fault of a completed run counts for the ladder if the run injected the fault at
   * least `gate.minimum` times.
   */
  ended(run: RunRecord): void {
    const known = this.#active.get(run.id)
    if (known === undefined) return
    this.#active.delete(run.id)
    const { envelope, hit, spec } = known
    const share = Math.max(0, ...run.stages.map((stage) => stage.share))
    const identities = [...new Set(hit.map(({ identity }) => identity))]
    const isProven = ({ name }: SpecFault) =>
      (run.faults.find((fault) => fault.name === name)?.injected ?? 0) >= spec.gate.minimum
    const proven = run.state === 'completed' ? spec.faults.filter(isProven).map(faultDigest) : []
    // The counts of a fault are for all servers together, so a run at several servers proves no rung at any of them.
    const [identity, ...others] = identities
    const reached =
      identity === undefined || others.length > 0 ? [] : proven.map((fault) => ({ identity, fault, share }))
    this.#book.over({ kind: 'over', run: run.id, state: run.state, envelope, reached })
  }

  /**
   * Returns the reason to end an active run: new targets, a withdrawn envelope, or too many faults for the envelope.
   * Undefined: the run may go on.
   */
  exceededBy(run: string, targets: Targets, hitsPerMinute: number): string | undefined {
    const known = this.#active.get(run)
    if (known === undefined) return undefined
    const { envelope: id, hit, spec } = known
    const state = id === undefined ? undefined : this.#envelopes.get(id)
    if (state?.isWithdrawn === true) return `the envelope ${id} was withdrawn`
    const allowed = new Set(hit.map(digestOf))
    const added = this.#hasher.hitToolsOf({ targets }, spec).find((tool) => !allowed.has(digestOf(tool)))
    if (added !== undefined)
      return `the targets changed during the run: ${added.server}/${added.tool} (${added.effect}) was not among the permitted targets`
    const maximum = state?.envelope.traffic?.hitsPerMinute
    return maximum !== undefined && hitsPerMinute > maximum
      ? `the run injected ${hitsPerMinute} faults within a minute, and its envelope allows ${maximum}`
      : undefined
  }

  /** Ends a run, or with `all` each waiting and active run. Each agent may end each run, and may repeat the call. */
  stop(agent: Agent, wanted: { readonly run: string } | 'all', why: string): readonly RunRecord[] | Refusal {
    const all = this.#runs.list()
    const isNamed = (key: 'id' | 'name') => (run: RunRecord) => wanted !== 'all' && run[key] === wanted.run
    // An id takes precedence over a name, because the name of a plan may equal the id of another run.
    const byId = all.filter(isNamed('id'))
    const named = byId.length > 0 ? byId : all.filter(isNamed('name'))
    const found = wanted === 'all' ? all.filter((run) => !isOver(run)) : named
    const starting = [...this.#starting].filter(({ name }) => wanted === 'all' || name === wanted.run)
    for (const one of starting) one.stoppedBy = agent.name
    if (found.length === 0 && starting.length === 0 && wanted !== 'all')
      return refusal('not_found', `there is no run ${wanted.run.slice(0, 64)}`)
    for (const run of found) if (!isOver(run)) this.#runs.stop(run.name, agent.name, why)
    this.#book.emit({ order: 'stop_run', by: agent.name, result: 'stopped', detail: why })
    return found.map((run) => this.#runs.get(run.name) ?? run)
  }
}
