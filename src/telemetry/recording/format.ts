import { z } from 'zod'
import { verdicts } from '../../mesh/outcome.ts'

/**
 * A recording is JSON Lines. Each of its files begins with a header, and goes on with a line for each tool call when that is over,
 * and one for calls that were lost. Tasks, tenants and arguments stand in it as digests under a key that is kept nowhere: equal ones
 * have equal digests within one recording, and nobody can find out by trying which they were.
 */

/** Version of this format: a reader takes no other. */
export const FORMAT = 1

/** Most attempts of one call that are written down. */
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

/** In milliseconds. A number that is larger than any clock shows is damage. */
const ms = z.number().min(0).max(Number.MAX_SAFE_INTEGER)

const count = z.int().min(0)

/** The first line of a file. */
export const header = z.object({
  breakwaterRecording: z.literal(FORMAT),
  /** Version of the program. */
  version: z.string(),
  /** When the recording began: ISO 8601, and the beginning of all its times. */
  startedAt: z.iso.datetime(),
  /** Number of this file in the recording, from 1. */
  part: z.int().min(1),
  environment: z.string(),
  /** Share of the tasks that are in it, in [0, 1]. */
  sample: z.number().min(0).max(1),
  /** Hash of the policies that were in force all the time; see `configHash`. */
  policiesHash: z.string(),
  /** The effect of running a tool again, by server and tool; only for servers that were known when the file was begun. */
  servers: z.record(z.string(), z.record(z.string(), effect)),
})

/** One try at a server. */
const attempt = z.object({
  /** As policies number them, from 1. */
  number: z.int().min(1),
  /** When it began, in milliseconds after the call came. */
  at: ms,
  tookMs: ms,
  /** `rejected`: a policy about attempts, such as a breaker, kept it from the server. */
  outcome: result,
  verdict: verdict.optional(),
  /** Reason of an attempt without an answer. */
  reason: z.string().optional(),
  retryAfterMs: ms.optional(),
  /** Whether its server cannot have got it. */
  unsent: z.literal(true).optional(),
  /** Code of an answer that is a JSON-RPC error. */
  code: z.number().optional(),
  /** The HTTP status, unless it is 200. */
  status: count.optional(),
  /** Only where it went to another tool than the call asked for. */
  server: z.string().optional(),
  tool: z.string().optional(),
  requestBytes: count,
  replyBytes: count.optional(),
})

/** One tool call that is over. */
export const call = z.object({
  /** When it came, in milliseconds after the recording began. */
  at: ms,
  /** Digest of its task; none when nothing says which it belongs to. */
  task: z.string().optional(),
  /** Number of the call in its task, as its agent says. */
  step: count.optional(),
  /** Digest of server, tool and arguments. */
  key: z.string(),
  server: z.string(),
  tool: z.string(),
  effect,
  /** Digest. */
  tenant: z.string(),
  /** The arm of an experiment that it ran in. */
  arm: z.string().optional(),
  result,
  /** Whether it went wrong as its agent saw it. */
  wrong: z.literal(true).optional(),
  /** Whether its arguments break the tool's `inputSchema`. */
  invalid: z.literal(true).optional(),
  verdict: verdict.optional(),
  /** Reason of a call without an answer, and the policy that rejected the call. */
  reason: z.string().optional(),
  by: z.string().optional(),
  tookMs: ms,
  /** How long the gateway kept it waiting on purpose. */
  waitedMs: ms,
  /** The time that neither waiting on purpose nor attempts took. */
  overheadMs: ms,
  retries: count,
  /** Why tries of it were rejected that are not what its caller was told. */
  rejectedTries: z.array(z.string()).optional(),
  attempts: z.array(attempt).max(MAX_ATTEMPTS),
  /** How many more there were, beyond `MAX_ATTEMPTS`. */
  moreAttempts: count.optional(),
})

/** So many calls are missing here: the disk was too slow for them. */
export const lost = z.object({ lost: count })

export type RecordingHeader = z.output<typeof header>
export type RecordedAttempt = z.output<typeof attempt>
export type RecordedCall = z.output<typeof call>
export type Effects = RecordingHeader['servers']
