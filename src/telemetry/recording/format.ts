import { z } from 'zod'
import { verdicts } from '../../mesh/outcome.ts'

/**
 * A recording is JSON Lines. Each of its files begins with a header, followed by a line for each finished tool call and
 * a line for lost calls. Tasks, tenants and arguments appear as digests, under a key that is kept nowhere. Equal values
 * have equal digests within a recording, and nobody can find the values by trying.
 */

/** Version of this format; readers accept no other. */
export const FORMAT = 1

/** Most recorded attempts of a call. */
export const MAX_ATTEMPTS = 32

const effect = z.enum(['read_only', 'idempotent', 'write', 'unknown'])

const verdict = z.enum(verdicts)

const result = z.enum([
  'returned',
  'rpc_error',
  'caller_error',
  'timeout',
  'transport_error',
  'cancelled',
  'rejected',
])

/** In milliseconds. A number larger than any clock shows means damage. */
const ms = z.number().min(0).max(Number.MAX_SAFE_INTEGER)

const count = z.int().min(0)

/** The first line of a file. */
export const header = z.object({
  breakwaterRecording: z.literal(FORMAT),
  /** Version of the program. */
  version: z.string(),
  /** When the recording began, in ISO 8601; all its times start here. */
  startedAt: z.iso.datetime(),
  /** Number of this file in the recording, from 1. */
  part: z.int().min(1),
  environment: z.string(),
  /** Share of the tasks recorded, in [0, 1]. */
  sample: z.number().min(0).max(1),
  /** Hash of the policies in force throughout; see `configHash`. */
  policiesHash: z.string(),
  /** The effect of running a tool again, by server and tool; only for servers known when the file began. */
  servers: z.record(z.string(), z.record(z.string(), effect)),
})

/** One try at a server. */
const attempt = z.object({
  /** The policies' number, from 1. */
  number: z.int().min(1),
  /** Start, in milliseconds after the call arrived. */
  at: ms,
  tookMs: ms,
  /** `rejected`: a policy about attempts, for example a breaker, stopped the attempt. */
  outcome: result,
  verdict: verdict.optional(),
  /** Reason of an attempt without an answer. */
  reason: z.string().optional(),
  retryAfterMs: ms.optional(),
  /** Whether its server cannot have received the attempt. */
  unsent: z.literal(true).optional(),
  /** Code of a JSON-RPC error answer. */
  code: z.number().optional(),
  /** The HTTP status, unless 200. */
  status: count.optional(),
  /** Only for an attempt at another tool than the call's. */
  server: z.string().optional(),
  tool: z.string().optional(),
  requestBytes: count,
  replyBytes: count.optional(),
})

/** A finished tool call. */
export const call = z.object({
  /** Arrival, in milliseconds after the recording began. */
  at: ms,
  /** Digest of its task; absent when the task is unknown. */
  task: z.string().optional(),
  /** The agent's number of the call within its task. */
  step: count.optional(),
  /** Digest of server, tool and arguments. */
  key: z.string(),
  server: z.string(),
  tool: z.string(),
  effect,
  /** Digest. */
  tenant: z.string(),
  /** The experiment arm of the call. */
  arm: z.string().optional(),
  result,
  /** Whether the call failed as its agent saw it. */
  wrong: z.literal(true).optional(),
  /** Whether its arguments break the tool's `inputSchema`. */
  invalid: z.literal(true).optional(),
  verdict: verdict.optional(),
  /** Reason of a call without an answer, and the policy that rejected the call. */
  reason: z.string().optional(),
  by: z.string().optional(),
  tookMs: ms,
  /** How long the gateway delayed the call on purpose. */
  waitedMs: ms,
  /** The time not spent in deliberate waits or attempts. */
  overheadMs: ms,
  retries: count,
  /** Reasons of rejected tries, unless reported to the caller. */
  rejectedTries: z.array(z.string()).optional(),
  attempts: z.array(attempt).max(MAX_ATTEMPTS),
  /** Number of further attempts, beyond `MAX_ATTEMPTS`. */
  moreAttempts: count.optional(),
})

/** Number of calls missing here because the disk was too slow. */
export const lost = z.object({ lost: count })

export type RecordingHeader = z.output<typeof header>
export type RecordedAttempt = z.output<typeof attempt>
export type RecordedCall = z.output<typeof call>
export type Effects = RecordingHeader['servers']
