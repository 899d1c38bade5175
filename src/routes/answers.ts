import type { FastifyReply, FastifyRequest } from 'fastify'
import type { z } from 'zod'
import type { Done } from '../chaos/control/controller-parts.ts'
import { Origins } from '../config/files/places.ts'
import { explain } from '../config/issues/explain.ts'

export interface RequestFinding {
  /** Path of the wrong value, such as `faults[0].rate`; empty when the whole request is wrong. */
  readonly path: string
  readonly message: string
}

export type Read<Value> =
  | { readonly ok: true; readonly value: Value }
  | { readonly ok: false; readonly error: string; readonly findings: readonly RequestFinding[] }

/**
 * Returns the value parsed by its schema, or findings. The texts of findings are the same as for a config: they name
 * the limit, or make a suggestion.
 */
export function read<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  what: string,
): Read<z.output<Schema>> {
  // Switches off zod's own texts: `explain` then uses the messages of the schemas, and makes all other texts.
  const parsed = schema.safeParse(value, { error: () => '' })
  if (parsed.success) return { ok: true, value: parsed.data }
  const issues = explain(parsed.error.issues, { schema, value, origins: new Origins() })
  return unreadable(
    what,
    issues.map(({ path, message }) => ({ path, message })),
  )
}

export const unreadable = (
  what: string,
  findings: readonly RequestFinding[],
): Read<never> & { ok: false } => ({
  ok: false,
  error: `${what} cannot be used`,
  findings,
})

/** Answers 400 with all findings. */
export const malformed = (reply: FastifyReply, { error, findings }: Read<unknown> & { ok: false }) =>
  reply.code(400).send({ error, findings })

/** Answers 409 with the reason of a refusal; returns undefined without a refusal. */
export const refused = (reply: FastifyReply, done: Done) =>
  done.ok ? undefined : reply.code(409).send({ error: done.why })

/** Returns the tag for `If-Match`: the state of chaos without its counters. */
const etagOf = ({ revision }: Revised) => `"${revision}"`

interface Revised {
  readonly revision: string
}

/** Returns the reply with the current `ETag`. */
export const tagged = (reply: FastifyReply, chaos: Revised) => reply.header('etag', etagOf(chaos))

/**
 * Answers 412 if `If-Match` names another state (RFC 9110, section 13.1.1); returns undefined if it matches or is
 * absent.
 */
export function outdated({ headers }: FastifyRequest, reply: FastifyReply, chaos: Revised) {
  const wanted = headers['if-match']
  if (wanted === undefined) return undefined
  const etag = etagOf(chaos)
  const tags = wanted.split(',').map((tag) => tag.trim())
  if (tags.includes('*') || tags.includes(etag)) return undefined
  const error =
    `the plan or the armed faults changed since you read them: the current tag is ${etag}, ` +
    `but If-Match says ${wanted.slice(0, 64)}; read the state again, then decide`
  return tagged(reply, chaos).code(412).send({ error })
}
