import { z } from 'zod'
import { signatureSchema } from './keys.ts'

/** Maximum lifetime of an approval, in milliseconds: one hour. */
export const APPROVAL_LIFE_MS = 3_600_000

const digest = z.string().regex(/^[0-9a-f]{64}$/, 'expected 64 hex digits')

/** Hashes of the inputs of a run. The gateway computes the hashes again before the run begins. */
export const hashesSchema = z.strictObject({
  /** The spec and its first stage. */
  planHash: digest,
  /** The environment state: policies, target servers and chaos settings. */
  groundHash: digest,
  /** Each tool that a fault could hit: server identity, tool and effect. */
  targetsHash: digest,
})

export type RunHashes = z.output<typeof hashesSchema>

/** A person's approval of one run of one proposal. */
export const approvalSchema = hashesSchema.extend({
  format: z.literal(1),
  /** Id of the proposal, or of the waiting run. */
  proposal: z.string().regex(/^[\w-]{1,64}$/, 'expected the id of a proposal'),
  gateway: z.string().max(64),
  /** Number of the first stage, from 1. */
  firstStage: z.int().min(1).max(10),
  issuedAt: z.iso.datetime(),
  expiresAt: z.iso.datetime(),
  nonce: z.string().regex(/^[A-Za-z0-9_-]{22}$/, 'expected 22 characters'),
})

export const signedApprovalSchema = z.strictObject({ approval: approvalSchema, signature: signatureSchema })

/** A person's order that lifts the suspension of an envelope. */
export const liftSchema = z.strictObject({
  format: z.literal(1),
  envelope: z.string().max(64),
  gateway: z.string().max(64),
  nonce: z.string().regex(/^[A-Za-z0-9_-]{22}$/, 'expected 22 characters'),
})

export const signedLiftSchema = z.strictObject({ lift: liftSchema, signature: signatureSchema })

export type Approval = z.output<typeof approvalSchema>
export type SignedApproval = z.output<typeof signedApprovalSchema>
export type SignedLift = z.output<typeof signedLiftSchema>

const keys = ['planHash', 'groundHash', 'targetsHash'] as const

/** Names of the hashed inputs, for messages to agents and persons. */
const inWords: Readonly<Record<(typeof keys)[number], string>> = {
  planHash: 'the plan',
  groundHash: 'the policies, servers or chaos settings',
  targetsHash: 'the targets (address, tools or effects)',
}

/** Returns the names of the changed inputs. Empty: all hashes are equal. */
export const changedBetween = (before: RunHashes, now: RunHashes): readonly string[] =>
  keys.filter((key) => before[key] !== now[key]).map((key) => inWords[key])

/**
 * Returns the problem with the times of an approval. Undefined: the approval is in force. `now`: milliseconds since the
 * epoch.
 */
export function untimely({ issuedAt, expiresAt }: Approval, now: number): string | undefined {
  const [from, to] = [Date.parse(issuedAt), Date.parse(expiresAt)]
  if (to - from > APPROVAL_LIFE_MS) return 'the approval lasts more than an hour, the longest life'
  if (now >= to) return `the approval expired at ${expiresAt}`
  return now < from - APPROVAL_LIFE_MS ? `the approval begins at ${issuedAt}` : undefined
}
