import type { GuardedExperiments } from '../experiments/guarded/guarded.ts'
import type { RunRecord } from '../experiments/guarded/record.ts'
import type { Clock } from '../mesh/clock.ts'
import { ActiveRuns } from './active-runs.ts'
import { Approvals } from './approvals.ts'
import { DurableBook, type OrderEvent } from './durable-book.ts'
import { Envelopes, type EnvelopesParts } from './envelopes.ts'
import type { OpenedLedger } from './ledger.ts'
import { Proposals } from './proposals.ts'
import { RunHasher, type RunHasherParts } from './run-hashes.ts'
import { Starts, type StartsParts } from './starts.ts'
import type { Trust } from './trust.ts'

export interface AgentRunsParts
  extends EnvelopesParts, RunHasherParts, Pick<StartsParts, 'isKilled' | 'isProtected'> {
  readonly clock: Clock
  readonly opened: OpenedLedger
  readonly runs: Pick<GuardedExperiments, 'plan' | 'run' | 'running' | 'stop' | 'get' | 'list'>
  /** Called for each order and refusal, to log the event. */
  readonly emit: (event: OrderEvent) => void
}

/** Runs that agents propose and begin, and the permissions for these runs. */
export interface AgentRuns {
  readonly gateway: string
  readonly environment: string
  readonly trust: Trust
  /** Completes a command for a person, so that the command finds this gateway. */
  readonly command: (words: string) => string
  readonly hasher: RunHasher
  readonly envelopes: Envelopes
  readonly approvals: Approvals
  readonly proposals: Proposals
  readonly starts: Starts
  readonly active: ActiveRuns
  close(): Promise<void>
}

/** Creates the parts and connects the parts. `earlier`: the runs of earlier processes. */
export function createAgentRuns(parts: AgentRunsParts, earlier: readonly RunRecord[]): AgentRuns {
  const { clock, opened, emit, gateway, environment, trust, command, runs } = parts
  const book = new DurableBook(clock, opened, emit)
  book.recover(earlier)
  const hasher = new RunHasher(parts)
  const envelopes = new Envelopes(parts, book)
  const approvals = new Approvals(gateway, trust, book)
  const shared = { ...parts, runs, book, hasher, envelopes, approvals }
  const proposals = new Proposals(shared)
  const active = new ActiveRuns(shared)
  const starts = new Starts({ ...shared, proposals, active })
  const close = () => book.close()
  return {
    gateway,
    environment,
    trust,
    command,
    hasher,
    envelopes,
    approvals,
    proposals,
    starts,
    active,
    close,
  }
}
