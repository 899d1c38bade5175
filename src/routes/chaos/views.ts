import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Controller } from '../../chaos/control/controller.ts'
import type { Because, DecisionEntry } from '../../chaos/journal/entry.ts'
import { explain } from '../../chaos/journal/explain.ts'
import type { Clock } from '../../mesh/clock.ts'
import { duration, formatDuration } from '../../units/duration.ts'
import { malformed, read, withPlainErrors } from './answers.ts'
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

/** Says of a decision, in one sentence, who was hit or not, and why. */
function inWords(entry: DecisionEntry): string {
  const { fault, type, side, attempt, call } = entry
  const target = `${call.server}/${call.tool ?? call.method}`
  const what = `${fault} (${type}, ${side} side), attempt ${attempt} at ${target}`
  return `${what}: ${entry.because === undefined ? hit(entry) : `not hit: ${reasons[entry.because](entry)}`}`
}

const reasons: Readonly<Record<Because, (entry: DecisionEntry) => string>> = {
  rate: (entry) =>
    entry.step === undefined
      ? `the draw ${shown(entry.u)} is not below the rate ${entry.rate}`
      : `no burst in ${stepOf(entry)}, whose draw is ${shown(entry.u)} (rate ${entry.rate})`,
  schedule: ({ count, sinceMs, u }) =>
    `its schedule leaves out call ${count} of those that match, ${formatDuration(Math.round(sinceMs))} after it was armed (draw ${shown(u)})`,
  write: (entry) => `${drawn(entry)}, but the tool is not known to be read-only and allowWrites is false`,
  max_injections: (entry) => `${drawn(entry)}, but maxInjections is used up`,
  overflow: (entry) => `${drawn(entry)}, but it holds maxConcurrent calls already`,
  refused: (entry) => `${drawn(entry)}, but the fault cannot work with this server`,
  shadow: (entry) => `${drawn(entry)}, but in shadow mode nothing is done`,
}

function hit(entry: DecisionEntry): string {
  const { status, note, outcome, released, fate, agent } = entry
  const parts = [`hit: ${drawn(entry)}`]
  if (status === 'pending') parts.push('still under way')
  if (status === 'not_applicable') parts.push(`there was nothing for it to do${reasonIn(note)}`)
  if (status === 'error') parts.push('the engine failed, and the call went on unharmed')
  if (released !== undefined) parts.push(`cut short: ${released}`)
  if (outcome !== undefined) parts.push(`the attempt ended as ${outcome}`)
  if (fate !== undefined) parts.push(fates[fate])
  if (agent !== undefined) parts.push(`what the agent did next: ${agent}`)
  return parts.join('; ')
}

const fates = {
  masked: 'masked: the agent never knew',
  surfaced: 'surfaced: the agent was told',
  escaped: 'escaped: a corrupted reply reached the agent looking fine',
}

const drawn = (entry: DecisionEntry) =>
  entry.step === undefined
    ? `the draw ${shown(entry.u)} is below the rate ${entry.rate}`
    : `a burst in ${stepOf(entry)}, whose draw is ${shown(entry.u)} (rate ${entry.rate})`

const stepOf = ({ step }: DecisionEntry) => `${step?.per} ${step?.index}`

const reasonIn = (note: DecisionEntry['note']) =>
  typeof note?.why === 'string' ? ` (${note.why.slice(0, 200)})` : ''

/** Cut and not rounded, so that no draw looks as if it had reached the rate. */
const shown = (u: number) => String(Math.floor(u * 1e6) / 1e6)
