import type { FastifyReply, FastifyRequest } from 'fastify'
import type { z } from 'zod'
import type { Done } from '../chaos/control/controller-parts.ts'
import { Origins } from '../config/files/places.ts'
import { explain } from '../config/issues/explain.ts'

/** A fault of a request, and its place in the request. */
export interface RequestFinding {
  /** Such as `faults[0].rate`; empty when it is about the whole. */
  readonly path: string
  readonly message: string
}

export type Read<Value> =
  | { readonly ok: true; readonly value: Value }
  | { readonly ok: false; readonly error: string; readonly findings: readonly RequestFinding[] }

/** Reads a value by its schema; what is wrong with it is said as of a config: with the bound, or what was meant. */
export function read<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  what: string,
): Read<z.output<Schema>> {
  // Without texts of its own zod leaves those of the schemas, and `explain` finds the rest.
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

/** Answers 400 with all that is wrong. */
export const malformed = (reply: FastifyReply, { error, findings }: Read<unknown> & { ok: false }) =>
  reply.code(400).send({ error, findings })

/** Answers 409 with the reason of a refusal; undefined when there was none. */
export const refused = (reply: FastifyReply, done: Done) =>
  done.ok ? undefined : reply.code(409).send({ error: done.why })

/** Returns the tag that `If-Match` is compared with: the state of the chaos mesh, without its counters. */
const etagOf = ({ revision }: Revised) => `"${revision}"`

interface Revised {
  readonly revision: string
}

/** The reply, with the `ETag` of the state that it leaves. */
export const tagged = (reply: FastifyReply, chaos: Revised) => reply.header('etag', etagOf(chaos))

/**
 * Answers 412 when the request was written for another state than this one (`If-Match`, RFC 9110, section 13.1.1);
 * undefined when it was not, or does not say.
 */
export function outdated({ headers }: FastifyRequest, reply: FastifyReply, chaos: Revised) {
  const wanted = headers['if-match']
  if (wanted === undefined) return undefined
  const etag = etagOf(chaos)
  const tags = wanted.split(',').map((tag) => tag.trim())
  if (tags.includes('*') || tags.includes(etag)) return undefined
  const error =
    `the plan, or what is armed, has changed since it was read: it is at ${etag} now, ` +
    `and If-Match says ${wanted.slice(0, 64)}; read it again, then decide`
  return tagged(reply, chaos).code(412).send({ error })
}
