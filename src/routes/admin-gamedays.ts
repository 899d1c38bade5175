import type { FastifyInstance, FastifyReply } from 'fastify'
import { z } from 'zod'
import type { Done } from '../experiments/experiments.ts'
import type { GuardedExperiments } from '../experiments/guarded/guarded.ts'
import { line } from '../experiments/guarded/spec.ts'
import type { GameDay } from '../gamedays/gameday.ts'
import type { GameDays } from '../gamedays/gamedays.ts'
import { type GameDayPlan, specOf } from '../gamedays/plan.ts'
import { gameDayResult, type GameDayRecord } from '../gamedays/record.ts'
import { isWithin } from '../gamedays/stop-conditions.ts'
import { guardedInShort } from './admin-guarded.ts'
import { malformed, read } from './answers.ts'

export interface AdminGameDaysParts {
  readonly gameDays: GameDays
  readonly guarded: Pick<GuardedExperiments, 'plan' | 'get' | 'needsSignature'>
  readonly plan: z.ZodType<GameDayPlan>
}

interface ById {
  readonly Params: { readonly id: string }
}

interface ByNumber {
  readonly Params: { readonly id: string; readonly number: string }
}

const by = line(128).default('admin API').describe('Name of the requester.')

const order = z.strictObject({ by, why: line(500).default('no reason given') })

const observation = z.strictObject({ by, text: line(1_000) })

const action = z.strictObject({
  by,
  what: line(500),
  owner: line(200).describe('The person or team that does it.'),
  due: z.iso.date('expected a date such as 2026-12-24').optional(),
})

/**
 * Registers the routes of GameDays: `POST /admin/gamedays` begins a GameDay, `/admin/gamedays/plan` shows its effects,
 * and `/admin/gamedays/{id}/pause`, `/resume`, `/skip`, `/stop`, `/observations` and `/actions` steer a GameDay. `{id}`
 * may be the name of a plan, for its latest GameDay.
 */
export function registerAdminGameDays(
  app: FastifyInstance,
  { gameDays, guarded, plan }: AdminGameDaysParts,
): void {
  const request = z.strictObject({ plan, by })

  app.get('/admin/gamedays', () => ({ gameDays: gameDays.list().map(gameDayInShort) }))

  app.post('/admin/gamedays/plan', (received, reply) => {
    const wanted = read(request, received.body ?? {}, 'the GameDay')
    if (!wanted.ok) return malformed(reply, wanted)
    const { plan, by } = wanted.value
    const isInScope = isWithin(plan.scope)
    return {
      name: plan.name,
      refusals: gameDays.refusals(plan),
      experiments: plan.experiments.map((step) => {
        const asked = { by, approvedBy: undefined, firstStage: 0 }
        const preview = guarded.plan(specOf(plan, step), asked)
        const outside = preview.targets.servers.filter(({ name }) => !isInScope(name))
        const refusals = outside.map(
          ({ name }) => `the server ${name} is outside of the scope of the GameDay`,
        )
        return { after: step.after, ...preview, refusals: [...preview.refusals, ...refusals] }
      }),
    }
  })

  app.post('/admin/gamedays', async (received, reply) => {
    const wanted = read(request, received.body ?? {}, 'the GameDay')
    if (!wanted.ok) return malformed(reply, wanted)
    const { plan, by } = wanted.value
    const started = await gameDays.start(plan, { by, isOfAgent: false })
    if (started.ok) return reply.code(202).send(shown(started.gameDay))
    const findings = started.refusals.map((message) => ({ path: '', message }))
    return reply.code(409).send({ error: 'refused: nothing was injected', findings })
  })

  const shown = (record: GameDayRecord) => {
    const step = record.steps.find(({ state }) => state === 'running' || state === 'waits for approval')
    const run = step && guarded.get(step.name)
    return {
      ...record,
      result: gameDayResult(record),
      run: run && run.id === step.runs.at(-1) ? guardedInShort(run, guarded.needsSignature) : undefined,
    }
  }

  const unknown = (reply: FastifyReply, id: string) =>
    reply.code(404).send({ error: `there is no GameDay "${id.slice(0, 64)}"` })

  app.get<ById>('/admin/gamedays/:id', ({ params: { id } }, reply) => {
    const record = gameDays.get(id)
    return record === undefined ? unknown(reply, id) : shown(record)
  })

  const change = (reply: FastifyReply, id: string, act: (day: GameDay) => Done) => {
    const record = gameDays.get(id)
    if (record === undefined) return unknown(reply, id)
    const done = gameDays.change(record.id, act)
    return done.ok ? reply.send(shown(gameDays.get(record.id)!)) : reply.code(409).send({ error: done.why })
  }

  for (const what of ['pause', 'resume', 'skip', 'stop'] as const)
    app.post<ById>(`/admin/gamedays/:id/${what}`, ({ params: { id }, body }, reply) => {
      const wanted = read(order, body ?? {}, 'the order')
      if (!wanted.ok) return malformed(reply, wanted)
      return change(reply, id, (day) => day[what](wanted.value.by, wanted.value.why))
    })

  app.post<ById>('/admin/gamedays/:id/observations', ({ params: { id }, body }, reply) => {
    const wanted = read(observation, body ?? {}, 'the observation')
    if (!wanted.ok) return malformed(reply, wanted)
    return change(reply, id, (day) => day.observe(wanted.value.by, wanted.value.text))
  })

  app.post<ById>('/admin/gamedays/:id/actions', ({ params: { id }, body }, reply) => {
    const wanted = read(action, body ?? {}, 'the action')
    if (!wanted.ok) return malformed(reply, wanted)
    return change(reply, id, (day) => day.addAction(wanted.value.by, wanted.value))
  })

  app.post<ByNumber>('/admin/gamedays/:id/actions/:number/done', ({ params, body }, reply) => {
    const wanted = read(z.strictObject({ by }), body ?? {}, 'the request')
    if (!wanted.ok) return malformed(reply, wanted)
    // JavaScript takes other texts for numbers, for example `0x1`; these texts name no action.
    if (!/^[1-9]\d{0,2}$/.test(params.number))
      return reply.code(404).send({ error: 'expected the number of an action, from 1' })
    return change(reply, params.id, (day) => day.closeAction(wanted.value.by, Number(params.number)))
  })
}

/** Returns a GameDay for lists. */
export function gameDayInShort(record: GameDayRecord) {
  const { id, plan, state, reason, by, startedAt, endedAt } = record
  return {
    id,
    name: plan.name,
    title: plan.title,
    state,
    reason,
    by,
    startedAt: new Date(startedAt).toISOString(),
    endedAt: endedAt === undefined ? undefined : new Date(endedAt).toISOString(),
    result: gameDayResult(record),
  }
}
