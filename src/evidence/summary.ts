import { z } from 'zod'
import { verdicts, reasonNames } from './verdict-names.ts'

/** Kinds of runs in the index. */
export const runKinds = ['guarded', 'comparison', 'scenario', 'paired', 'gameday', 'soak'] as const

/** Longest names and other texts in a summary, in characters. */
export const LONGEST_NAME = 200
export const LONGEST_TEXT = 2_000

const name = z.string().min(1).max(LONGEST_NAME)
const text = z.string().max(LONGEST_TEXT)
const hash = z.string().max(64)
const count = z.int().min(0)
/** Milliseconds; fractions count. */
const ms = z.number().min(0)
const share = z.number().min(0).max(1)

/** Longest lists in a summary, so that a line stays short. */
const MOST = 64
const MOST_CELLS = 1_300

const fault = z.strictObject({
  name,
  type: name,
  /** Highest number of calls that the fault could have hit; null when unknown. */
  planned: count.nullable(),
  drawn: count,
  /** Injections that took effect; the last four fields divide these by fate. */
  applied: count,
  notApplicable: count,
  notReached: count,
  masked: count,
  delayed: count,
  surfaced: count,
  escaped: count,
})

const window = z.strictObject({
  phase: name,
  /** From 0; null outside of stages. */
  stage: count.nullable(),
  arm: name,
  fromMs: ms,
  toMs: ms,
  calls: count,
  good: count,
  failed: count,
  /** Null where wrong replies are not counted apart. */
  wrong: count.nullable(),
  /** Durations as pairs of cell and count: cell n holds up to 0.1 ms · 1.02 ^ n. Adding counts merges windows. */
  cells: z.array(z.tuple([count, count])).max(MOST_CELLS),
})

/**
 * The summary of a run, format 1: a line of the index. All times `at` are milliseconds since the Unix epoch; times
 * `…Ms` are durations, or milliseconds since the run began. Shares are in [0, 1].
 */
export const runSummary = z.strictObject({
  format: z.literal(1),
  id: z.string().regex(/^[a-z0-9][a-z0-9-]{0,63}$/),
  kind: z.enum(runKinds),
  name,
  /** Hash of the plan as written, and of what the plan does (without its texts). */
  plan: hash,
  shape: hash,
  at: z.number().min(0).max(8.64e15),
  tookMs: ms,
  version: name,
  /** The gateway and its process; `replicas`: gateways that share the servers. */
  gateway: name.nullable(),
  bootId: name.nullable(),
  environment: name,
  replicas: z.int().min(1),
  hashes: z.strictObject({ config: hash, policies: hash, faults: hash, targets: hash, load: hash }),
  seed: name.nullable(),
  host: z.strictObject({
    /** Hash of the other fields: only runs of the same class are compared. */
    class: hash,
    cpu: text,
    cores: count,
    memoryBytes: count,
    node: name,
    container: z.boolean(),
  }),
  era: name,
  transport: name,
  /** The measurer: the gateway of the index, or a client that handed in the summary. Default, for older lines: `gateway`. */
  measuredBy: z.enum(['gateway', 'client']).default('gateway'),
  /** SHA-256 of the document that the client handed in, in hex; null for a run that the gateway measured. */
  document: hash.nullable().default(null),
  /** The starter of the run. For a client's run: the credential of the hand-in, because only the credential is proved. */
  by: name,
  approver: name.nullable(),
  approverProof: name.nullable(),
  envelope: name.nullable(),
  trust: hash.nullable(),
  targets: z.array(z.strictObject({ server: name, tool: name, effect: name })).max(MOST),
  load: z.strictObject({
    model: z.enum(['open', 'closed', 'real']),
    /** Calls or tasks a second, for an open load. */
    rate: z.number().min(0).nullable(),
    concurrency: count.nullable(),
  }),
  arms: z
    .array(
      z.strictObject({
        name,
        set: name,
        calls: count,
        good: count,
        wrong: count.nullable(),
        rejected: count,
        unjudged: count,
        attempts: count,
      }),
    )
    .max(8),
  faults: z.array(fault).max(MOST),
  windows: z.array(window).max(MOST),
  transitions: z.array(z.strictObject({ atMs: ms, layer: name, name, from: name, to: name })).max(MOST),
  recoveries: z
    .array(
      z.strictObject({
        layer: name,
        name,
        /** Time to recover; with `censored`, the time watched without a recovery. */
        ms,
        censored: z.boolean(),
      }),
    )
    .max(MOST),
  claims: z
    .array(
      z.strictObject({
        text,
        /** The measured value with its 95 % interval; null without one. */
        value: z.number().nullable(),
        low: z.number().nullable(),
        high: z.number().nullable(),
        n: count,
        status: z.enum(['proven', 'held', 'failed', 'not_measured']),
      }),
    )
    .max(MOST),
  estimates: z.array(z.strictObject({ of: name, expected: text, found: text, right: z.boolean() })).max(16),
  /** The promised recovery time, and the measured one; null: promised or measured none. */
  rto: z.strictObject({ promisedMs: ms.nullable(), measuredMs: ms.nullable() }),
  /** How often the plan is due, in milliseconds; null: the plan does not say. */
  everyMs: ms.nullable(),
  state: name,
  verdict: z.enum(verdicts),
  reasons: z.array(z.enum(reasonNames)).max(reasonNames.length),
  /** Share of the calls in the treatment in the last stage; null without arms. */
  share: share.nullable(),
})

export type RunSummary = z.output<typeof runSummary>
