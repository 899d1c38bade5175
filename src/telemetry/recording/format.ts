import { z } from 'zod'
import { fates } from '../../mesh/injected.ts'
import { verdicts } from '../../mesh/outcome.ts'

/**
 * A recording is JSON Lines. Each of its files begins with a header. Further lines stand for a finished tool call, for
 * the reported outcome of a task, or for lost calls. Tasks, tenants, arguments and replies appear as digests, under a
 * key that is kept nowhere. Equal values have equal digests within a recording, and nobody can find the values by
 * trying.
 */

/** Version of this format; readers accept no other version. */
export const FORMAT = 2

/** Most recorded attempts of a call. */
export const MAX_ATTEMPTS = 32

/** Most recorded faults of a call. */
export const MAX_FAULTS = 16

/** Most values of faults that are followed in a task. */
export const MAX_CANARIES = 64

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

/** Parts of a reply that its agent can act on; a missing part was not told. */
const told = z.object({
  /** Whether the reply was flagged as partial. */
  partial: z.literal(true).optional(),
  /** Earliest useful retry, in milliseconds after the reply. */
  retryAfterMs: ms.optional(),
  /** Only in an error of the gateway: whether the call may have run. */
  sent: z.boolean().optional(),
})

/** A fault that was injected into a call. */
const injected = z.object({
  name: z.string(),
  type: z.string(),
  side: z.enum(['upstream', 'client']),
  fate: z.enum(fates),
})

/** Digests of values. */
const values = z.array(z.string()).max(MAX_CANARIES)

/** A finished tool call. */
export const call = z.object({
  /** Arrival of the call, in milliseconds after the recording began. */
  at: ms,
  /** Digest of the call's task; absent when the task is unknown. */
  task: z.string().optional(),
  /** Number of the call within its task, as the agent sent it. */
  step: count.optional(),
  /** Digest of server, tool and arguments, and of the agent's answers to the server's questions. */
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
  /** Index of the replica of the last attempt. */
  replica: count.optional(),
  told: told.optional(),
  /** Whether the agent gave an idempotency key. */
  idem: z.literal(true).optional(),
  /** Whether the reply is the reply of an earlier call with the same idempotency key: this call did not run. */
  replay: z.literal(true).optional(),
  /** Digest of the reply's content as its agent got it; absent for a reply too large or too deep to compare. */
  replyKey: z.string().optional(),
  faults: z.array(injected).max(MAX_FAULTS).optional(),
  /** Values that escaped faults put into this reply; absent when none is known. */
  canaries: values.optional(),
  /** Number of further values, beyond `MAX_CANARIES` of the task, and of faults that cannot tell their values. */
  moreCanaries: count.optional(),
  /** Canaries of earlier replies of the task within this call's arguments. */
  uses: values.optional(),
  /** Canaries of the task that this reply holds, although no fault harmed the reply. */
  clean: values.optional(),
  /** Whether arguments or reply could not be compared with all canaries of the task. */
  unwatched: z.literal(true).optional(),
})

/** The reported outcome of a task. */
export const outcome = z.object({
  /** Digest of the task. */
  task: z.string(),
  /** For example `succeeded`, `degraded` or `failed`. */
  outcome: z.string().min(1).max(64),
  /** When the outcome was reported, in milliseconds after the recording began. */
  at: ms,
})

/** A line with the number of calls missing here because the disk was too slow. */
export const lost = z.object({ lost: count })

export type RecordingHeader = z.output<typeof header>
export type RecordedAttempt = z.output<typeof attempt>
export type RecordedCall = z.output<typeof call>
export type RecordedOutcome = z.output<typeof outcome>
export type Told = z.output<typeof told>
export type Effects = RecordingHeader['servers']
