import { z } from 'zod'
import { verdicts } from '../../mesh/outcome.ts'

/**
 * The format of a recording: JSON Lines. Each file begins with a header, followed by a line for each finished tool call
 * and lines for lost calls. Digests replace tasks, tenants and arguments. The key of the digests is never stored, so a
 * reader cannot find the values by trying. Within a recording, equal values have equal digests.
 */

/** Version of this format; readers accept no other version. */
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

/** A time in milliseconds. A larger number than any clock shows means a damaged file. */
const ms = z.number().min(0).max(Number.MAX_SAFE_INTEGER)

const count = z.int().min(0)

/** The first line of a file. */
export const header = z.object({
  breakwaterRecording: z.literal(FORMAT),
  /** Version of the program. */
  version: z.string(),
  /** Start of the recording, in ISO 8601; times of calls are relative to this start. */
  startedAt: z.iso.datetime(),
  /** Number of this file in the recording, from 1. */
  part: z.int().min(1),
  environment: z.string(),
  /** Share of tasks that are recorded, in [0, 1]. */
  sample: z.number().min(0).max(1),
  /** Hash of the policies, which are the same during the whole recording; see `configHash`. */
  policiesHash: z.string(),
  /** The effect of running a tool again, by server and tool. Only for servers known at the start of the file. */
  servers: z.record(z.string(), z.record(z.string(), effect)),
})

/** One attempt at a server. */
const attempt = z.object({
  /** Number of the attempt as policies count, from 1. */
  number: z.int().min(1),
  /** Start of the attempt, in milliseconds after the call arrived. */
  at: ms,
  tookMs: ms,
  /** Result of the attempt. `rejected`: a policy, such as a breaker, stopped the attempt. */
  outcome: result,
  verdict: verdict.optional(),
  /** Reason of the error of an attempt without an answer. */
  reason: z.string().optional(),
  retryAfterMs: ms.optional(),
  /** Present when the server cannot have received the attempt. */
  unsent: z.literal(true).optional(),
  /** Code of a JSON-RPC error answer. */
  code: z.number().optional(),
  /** The HTTP status, unless 200. */
  status: count.optional(),
  /** Server and tool of the attempt, if different from the call's. */
  server: z.string().optional(),
  tool: z.string().optional(),
  requestBytes: count,
  replyBytes: count.optional(),
})

/** A finished tool call. */
export const call = z.object({
  /** Arrival of the call, in milliseconds after the recording began. */
  at: ms,
  /** Digest of the call's task; absent when the task is unknown. */
  task: z.string().optional(),
  /** Number of the call within its task, as the agent sent it. */
  step: count.optional(),
  /** Digest of server, tool and arguments. */
  key: z.string(),
  server: z.string(),
  tool: z.string(),
  effect,
  /** Digest of the tenant. */
  tenant: z.string(),
  /** The experiment arm of the call. */
  arm: z.string().optional(),
  result,
  /** Present when the call failed for its agent. */
  wrong: z.literal(true).optional(),
  /** Present when the call's arguments break the tool's `inputSchema`. */
  invalid: z.literal(true).optional(),
  verdict: verdict.optional(),
  /** Reason of the error of a call without an answer, and the policy that rejected the call. */
  reason: z.string().optional(),
  by: z.string().optional(),
  tookMs: ms,
  /** Time in deliberate waits of the gateway, such as a back-off. */
  waitedMs: ms,
  /** Time of the call outside of deliberate waits and attempts. */
  overheadMs: ms,
  retries: count,
  /** Reasons of rejected attempts whose rejection the agent did not get. */
  rejectedTries: z.array(z.string()).optional(),
  attempts: z.array(attempt).max(MAX_ATTEMPTS),
  /** Number of further attempts, beyond `MAX_ATTEMPTS`. */
  moreAttempts: count.optional(),
})

/** A line with the number of calls missing here because the disk was too slow. */
export const lost = z.object({ lost: count })

export type RecordingHeader = z.output<typeof header>
export type RecordedAttempt = z.output<typeof attempt>
export type RecordedCall = z.output<typeof call>
export type Effects = RecordingHeader['servers']
