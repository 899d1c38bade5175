import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Controller } from '../../chaos/control/controller.ts'
import { explain } from '../../chaos/journal/explain.ts'
import type { Clock } from '../../mesh/clock.ts'
import { duration } from '../../units/duration.ts'
import { malformed, read, withPlainErrors } from './answers.ts'
import { inWords } from './words.ts'
import { wouldHit } from './would-hit.ts'

/** Most entries that one request shows. */
const MAX_SHOWN = 1_000

const number = (least: number, most: number) => z.coerce.number().pipe(z.int().min(least).max(most))

const journalQuery = z.strictObject({
  limit: number(1, MAX_SHOWN).default(100).describe('Most entries.'),
  since: number(0, Number.MAX_SAFE_INTEGER)
    .optional()
    .describe('Only entries after this number, the oldest first; without it the latest.'),
})

const explainQuery = z.strictObject({
  call: z.string().min(1).max(2_048).describe('Id of a call, its callKey, or its intent.'),
})

const planQuery = z.strictObject({
  last: duration({ min: 1 }).default(3_600_000).describe('How far back.'),
})

/** What was decided and done: `GET /admin/chaos/{journal,explain,plan}`, out of what is in memory. */
export function registerViews(scope: FastifyInstance, chaos: Controller, clock: Clock): void {
  withPlainErrors(scope)

  scope.get('/admin/chaos/journal', (request, reply) => {
    const query = read(journalQuery, request.query, 'the query')
    if (!query.ok) return malformed(reply, query)
    const { limit, since } = query.value
    const kept = chaos.journal.entries()
    const later = since === undefined ? kept : kept.filter(({ seq }) => seq > since)
    const entries = since === undefined ? later.slice(-limit) : later.slice(0, limit)
    return reply.send({
      entries,
      /** What to ask for next with `since`. */
      next: entries.at(-1)?.seq ?? since ?? 0,
      /** Whether there are entries after these. */
      more: later.at(-1) !== entries.at(-1),
      oldest: kept[0]?.seq,
    })
  })

  scope.get('/admin/chaos/explain', (request, reply) => {
    const query = read(explainQuery, request.query, 'the query')
    if (!query.ok) return malformed(reply, query)
    const { call } = query.value
    const decisions = explain(chaos.journal.decisions(), call).slice(-MAX_SHOWN)
    if (decisions.length > 0) {
      return reply.send({
        call,
        decisions: decisions.map((entry) => ({ words: inWords(entry), ...entry })),
      })
    }
    const error =
      `nothing was decided about a call "${call.slice(0, 64)}" as far back as memory goes: ` +
      'no armed fault matched it, or its entries are in the journal file only'
    return reply.code(404).send({ error })
  })

  scope.get('/admin/chaos/plan', (request, reply) => {
    const query = read(planQuery, request.query, 'the query')
    if (!query.ok) return malformed(reply, query)
    const { mode } = chaos.config
    return reply.send({ mode, ...wouldHit(chaos.journal.entries(), clock.wall(), query.value.last) })
  })
}
