import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Done } from '../chaos/control/controller-parts.ts'
import type { Controller } from '../chaos/control/controller.ts'
import type { Because, DecisionEntry } from '../chaos/journal/entry.ts'
import { explain } from '../chaos/journal/explain.ts'
import type { PlanTargets } from '../chaos/plan/checks.ts'
import { withoutSecrets } from '../chaos/plan/schema.ts'
import type { Clock } from '../mesh/clock.ts'
import { isObject, parseJson } from '../protocol/jsonrpc.ts'
import { duration, formatDuration } from '../units/duration.ts'
import { malformed, outdated, read, refused, tagged } from './answers.ts'
import { readPlan } from './chaos/plan.ts'
import { wouldHit } from './chaos/would-hit.ts'

/** The author of an action when its request names no author. */
const SOMEBODY = 'admin API'
const NO_REASON = 'no reason given'

const attribution = z
  .strictObject({
    by: z.string().min(1).max(128).default(SOMEBODY).describe('Name of the person or program.'),
    why: z.string().min(1).max(512).default(NO_REASON).describe('The reason.'),
  })
  .prefault({})

/** Longest body of a stop request, in bytes. */
const MOST_WORDS = 16 * 1024

type Turn = (chaos: Controller, by: string, why: string) => Done

const turns: Readonly<Record<string, Turn>> = {
  arm: (chaos, by, why) => chaos.arm(by, why),
  unkill: (chaos, by, why) => chaos.unkill(by, why),
  renew: (chaos, by) => chaos.renew(by),
}

/** Registers `POST /admin/chaos/{arm,unkill,renew}`. Refuses an unreadable request. */
function registerStarts(app: FastifyInstance, chaos: Controller): void {
  for (const [name, turn] of Object.entries(turns)) {
    app.post(`/admin/chaos/${name}`, (request, reply) => {
      const body = read(attribution, request.body ?? {}, 'the body')
      if (!body.ok) return malformed(reply, body)
      const stale = outdated(request, reply, chaos)
      if (stale !== undefined) return stale
      const { by, why } = body.value
      return refused(reply, turn(chaos, by, why)) ?? tagged(reply, chaos).send(withoutSecrets(chaos.status()))
    })
  }
}

/**
 * Registers `POST /admin/chaos/{kill,disarm}`. Stops faults even if the request or its `If-Match` is wrong. The answer
 * of `kill` depends only on the kill switch, not on the engine.
 */
function registerStops(scope: FastifyInstance, chaos: Controller): void {
  const kill = (body: unknown) => {
    const { by, why } = attributed(body)
    chaos.killSwitch.kill(by, why)
    return { state: 'killed', ...chaos.killSwitch.killed }
  }
  const disarm = (body: unknown) => {
    const { by, why } = attributed(body)
    chaos.disarm(by, why)
    return withoutSecrets(chaos.status())
  }
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', { parseAs: 'string', bodyLimit: MOST_WORDS }, (_, body, done) =>
    done(null, String(body)),
  )
  for (const [path, stop] of [
    ['/admin/chaos/kill', kill],
    ['/admin/chaos/disarm', disarm],
  ] as const) {
    scope.post(path, {
      config: { stops: true },
      handler: (request, reply) => reply.send(stop(request.body)),
      errorHandler(error, _, reply) {
        // Stops faults even if the body is too long or incomplete.
        stop(undefined)
        void reply.code(error.statusCode ?? 500).send({ error: `${error.message}; stopped anyway` })
      },
    })
  }
}

/** Returns the author and the reason of a stop, as far as the body is readable. */
function attributed(body: unknown): { readonly by: string; readonly why: string } {
  const said = typeof body === 'string' ? parseJson(body) : undefined
  const { by, why } = isObject(said) ? said : {}
  return {
    by: typeof by === 'string' && by !== '' ? by.slice(0, 128) : SOMEBODY,
    why: typeof why === 'string' && why !== '' ? why.slice(0, 512) : NO_REASON,
  }
}

const MAX_SHOWN = 1_000

const number = (least: number, most: number) => z.coerce.number().int().min(least).max(most)

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

/** Registers `GET /admin/chaos/{journal,explain,plan}`, which show the decisions and actions in memory. */
function registerViews(app: FastifyInstance, chaos: Controller, clock: Clock): void {
  app.get('/admin/chaos/journal', (request, reply) => {
    const query = read(journalQuery, request.query, 'the query')
    if (!query.ok) return malformed(reply, query)
    const { limit, since } = query.value
    const kept = chaos.journal.entries()
    const later = since === undefined ? kept : kept.filter(({ seq }) => seq > since)
    const entries = since === undefined ? later.slice(-limit) : later.slice(0, limit)
    return reply.send({
      entries,
      /** The `since` of the next request. */
      next: entries.at(-1)?.seq ?? since ?? 0,
      more: later.at(-1) !== entries.at(-1),
      oldest: kept[0]?.seq,
    })
  })

  app.get('/admin/chaos/explain', (request, reply) => {
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
      `memory holds no decision about a call "${call.slice(0, 64)}": ` +
      'no armed fault matched the call, or its entries are only in the journal file'
    return reply.code(404).send({ error })
  })

  app.get('/admin/chaos/plan', (request, reply) => {
    const query = read(planQuery, request.query, 'the query')
    if (!query.ok) return malformed(reply, query)
    const { mode } = chaos.config
    return reply.send({ mode, ...wouldHit(chaos.journal.entries(), clock.wall(), query.value.last) })
  })
}

/** Returns a decision as one sentence: hit or not, and why. */
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
  task: ({ u, rate }) => `its task is not in the share ${rate} of tasks to be hit (draw ${shown(u)})`,
  schedule: ({ count, sinceMs, u }) =>
    `its schedule leaves out matching call ${count}, ${formatDuration(Math.round(sinceMs))} after arming (draw ${shown(u)})`,
  write: (entry) => `${drawn(entry)}, but the tool is not known to be read-only and allowWrites is false`,
  list_unknown: (entry) =>
    `${drawn(entry)}, but the server's list of tools is unknown, so the tool may not be read-only`,
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
  if (status === 'not_reached') parts.push(`it had no effect${reasonIn(note)}`)
  if (status === 'error') parts.push('the engine failed, and the call continued')
  if (released !== undefined) parts.push(`cut short: ${released}`)
  if (outcome !== undefined) parts.push(`the attempt ended as ${outcome}`)
  if (fate !== undefined) parts.push(fates[fate])
  if (agent !== undefined) parts.push(`the agent's use of the reply: ${agent}`)
  return parts.join('; ')
}

const fates = {
  masked: 'masked: the agent never knew',
  delayed: 'delayed: the agent had to wait',
  surfaced: 'surfaced: the agent was told',
  escaped: 'escaped: a corrupted reply reached the agent unnoticed',
  not_reached: 'not reached: the call, or the fault, ended first',
}

const drawn = (entry: DecisionEntry) =>
  entry.step === undefined
    ? `the draw ${shown(entry.u)} is below the rate ${entry.rate}`
    : `a burst in ${stepOf(entry)}, whose draw is ${shown(entry.u)} (rate ${entry.rate})`

const stepOf = ({ step }: DecisionEntry) =>
  `${step?.per} ${step?.index}${step?.of === undefined ? '' : ` of ${step.of}`}`

const reasonIn = (note: DecisionEntry['note']) =>
  typeof note?.why === 'string' ? ` (${note.why.slice(0, 200)})` : ''

/** Returns a draw with six digits, truncated: a rounded draw could look equal to the rate. */
const shown = (u: number) => String(Math.floor(u * 1e6) / 1e6)

export interface AdminChaosParts {
  readonly chaos: Controller
  readonly clock: Clock
  /** Returns the servers that a plan may target; without this function, plans are not checked against servers. */
  readonly targets?: () => PlanTargets
}

const putQuery = z.strictObject({
  by: z.string().min(1).max(128).default(SOMEBODY).describe('Name of the person or program.'),
})

/** Registers the operator's routes for the state and the plan of faults, the kill switch, and decisions. */
export function registerAdminChaos(app: FastifyInstance, { chaos, clock, targets }: AdminChaosParts): void {
  // Uses a separate scope, because the body parsers of the stops must not affect other routes.
  void app.register((scope, _, done) => {
    registerStops(scope, chaos)
    done()
  })
  registerStarts(app, chaos)
  registerViews(app, chaos, clock)

  app.get('/admin/chaos', (_, reply) => tagged(reply, chaos).send(withoutSecrets(chaos.status())))

  // Also shows an ended fault: its counts may still change, because calls that it hit may still run.
  app.get<{ Params: { name: string } }>('/admin/chaos/faults/:name', (request, reply) => {
    const { name } = request.params
    const found = chaos.faultStatus(name)
    if (found !== undefined) return reply.send(withoutSecrets(found))
    return reply
      .code(404)
      .send({ error: `no fault "${name.slice(0, 64)}" is armed now, or in the memory of ended faults` })
  })

  /**
   * Replaces the plan of this process until a config with a changed `chaos` block is loaded. Parts missing in the body
   * get their defaults, not the values of the previous plan.
   */
  app.put('/admin/chaos', (request, reply) => {
    const query = read(putQuery, request.query, 'the query')
    if (!query.ok) return malformed(reply, query)
    const plan = readPlan(request.body, chaos.config, targets?.())
    if (!plan.ok) return malformed(reply, plan)
    const stale = outdated(request, reply, chaos)
    if (stale !== undefined) return stale
    const { seed, mode, faults } = plan.value
    chaos.apply({ ...chaos.config, seed, mode, faults }, query.value.by)
    return tagged(reply, chaos).send(withoutSecrets(chaos.status()))
  })
}
