import { createHash, randomUUID } from 'node:crypto'
import { z } from 'zod'
import type { Millis } from '../mesh/clock.ts'
import { canonicalJson } from '../protocol/canonical-json.ts'
import type { RunIndex } from './run-index.ts'
import { runSummary, type RunSummary } from './summary.ts'
import { judgementByClaims } from './verdict-by-claims.ts'

/** Kinds of runs that a client measures. The gateway measures the other kinds. */
export const handedInKinds = ['scenario', 'paired', 'soak'] as const
export type HandedInKind = (typeof handedInKinds)[number]

/** Most bytes of a handed-in document, as JSON. */
export const MOST_BYTES = 64 * 1024

/** Size of an index from which on clients add nothing more. Runs of the gateway always find room. */
const MOST_INDEX_BYTES = 512 * 1024 ** 2

/** How far the clock of a client may be ahead, in milliseconds. */
const SKEW_MS: Millis = 60_000

const EARLIEST = Date.UTC(2000)

/** The fields that the receiver of a document sets, because only the receiver can prove or judge these fields. */
const received = {
  gateway: true,
  bootId: true,
  measuredBy: true,
  document: true,
  by: true,
  approver: true,
  approverProof: true,
  envelope: true,
  trust: true,
  verdict: true,
} as const

/**
 * A run as a client hands it in, format 1: a summary without verdict, and without the fields that name the gateway and
 * the persons. `reasons`: why the run proves nothing, as far as only the client can tell. `state`: `failed` for a run
 * that broke off.
 */
export const handIn = runSummary
  .omit(received)
  .extend({ kind: z.enum(handedInKinds), state: z.enum(['completed', 'stopped', 'failed']) })
  .superRefine(({ id, kind, arms, windows, faults, claims }, context) => {
    const refuse = (path: (string | number)[], message: string) =>
      context.addIssue({ code: 'custom', path, message })
    // The gateway gives its own runs ids without such a prefix: nobody can take the id of another run.
    if (!id.startsWith(`${kind}-`)) refuse(['id'], `expected an id that begins with ${kind}-`)
    arms.forEach(({ calls, good }, at) => {
      if (good > calls) refuse(['arms', at, 'good'], 'expected at most as many as calls')
    })
    windows.forEach(({ calls, good, failed, fromMs, toMs }, at) => {
      if (good + failed > calls) refuse(['windows', at], 'expected good and failed to be at most calls')
      if (toMs < fromMs) refuse(['windows', at, 'toMs'], 'expected a time after fromMs')
    })
    faults.forEach(({ drawn, applied, masked, delayed, surfaced, escaped }, at) => {
      if (applied > drawn) refuse(['faults', at, 'applied'], 'expected at most drawn')
      if (masked + delayed + surfaced + escaped > applied)
        refuse(['faults', at], 'expected masked, delayed, surfaced and escaped to be at most applied')
    })
    claims.forEach(({ value, low, high }, at) => {
      if ((low ?? -Infinity) > (value ?? low ?? 0) || (high ?? Infinity) < (value ?? high ?? 0))
        refuse(['claims', at], 'expected a value between low and high')
    })
  })

export type HandIn = z.output<typeof handIn>

/** Returns an id for a run that began at `at`, in milliseconds since the epoch. */
export const newRunId = (kind: HandedInKind | 'comparison', at: Millis): string =>
  `${kind}-${Math.floor(at).toString(36)}-${randomUUID().slice(0, 8)}`

/** Returns the SHA-256 of a document, in hex: equal documents have equal hashes, whatever the order of their keys. */
export const documentHash = (run: HandIn): string =>
  createHash('sha256')
    .update(canonicalJson(run) ?? '')
    .digest('hex')

/** The receiver of a document. `by`: the credential that the client showed. */
export interface Receiver extends Pick<RunSummary, 'gateway' | 'bootId' | 'by'> {
  /** Milliseconds since the epoch. */
  readonly now: Millis
}

/** Returns why a document cannot be right; undefined for a plausible document. */
export function implausible({ at, tookMs }: HandIn, now: Millis): string | undefined {
  if (at < EARLIEST) return 'the run began before the year 2000'
  return at + tookMs > now + SKEW_MS ? 'the run ends in the future' : undefined
}

/** Returns the summary of a handed-in run. The receiver judges the run by its figures. */
export function receivedRun(run: HandIn, { gateway, bootId, by }: Receiver): RunSummary {
  const { verdict, reasons } = judgementByClaims(run)
  return {
    ...run,
    gateway,
    bootId,
    measuredBy: 'client',
    document: documentHash(run),
    by,
    approver: null,
    approverProof: null,
    envelope: null,
    trust: null,
    verdict,
    reasons: [...reasons],
  }
}

/** The fate of a handed-in document. */
export type HandedIn =
  | { readonly ok: true; readonly isNew: boolean; readonly run: RunSummary }
  | {
      readonly ok: false
      /**
       * `taken`: another document has the id. `full`: the index takes no more documents of clients. `unwritten`: the
       * disk took nothing.
       */
      readonly code: 'implausible' | 'taken' | 'full' | 'unwritten'
      readonly message: string
    }

/** Adds a document to an index, unless the index has the document already. Never rejects. */
export async function addHandedIn(
  index: Pick<RunIndex, 'has' | 'documentOf' | 'bytes' | 'addRuns'>,
  document: HandIn,
  receiver: Receiver,
): Promise<HandedIn> {
  const why = implausible(document, receiver.now)
  if (why !== undefined) return { ok: false, code: 'implausible', message: `${document.id}: ${why}` }
  const run = receivedRun(document, receiver)
  if (index.has(run.id)) {
    if (index.documentOf(run.id) === run.document) return { ok: true, isNew: false, run }
    return { ok: false, code: 'taken', message: `the index has another run ${run.id}` }
  }
  if (index.bytes >= MOST_INDEX_BYTES)
    return { ok: false, code: 'full', message: 'the index takes no more runs of clients: it has 512 MiB' }
  try {
    await index.addRuns([run], receiver.now)
    return { ok: true, isNew: true, run }
  } catch (error) {
    const message = `the index cannot be written: ${(error as Error).message}`
    return { ok: false, code: 'unwritten', message }
  }
}
