import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Controller } from '../chaos/control/controller.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Intents } from '../telemetry/intents.ts'
import { LONGEST_INTENT } from '../telemetry/intents/attribution.ts'
import { malformed, read, withPlainErrors } from './chaos/answers.ts'

export interface AdminOutcomesParts {
  readonly clock: Pick<Clock, 'after'>
  readonly chaos: Pick<Controller, 'engine'>
  readonly intents: Pick<Intents, 'report'>
}

/** Most reports of one request. */
const MAX = 1_000

/** After how many reports others get a turn: each may search a journal. */
const PER_TURN = 5

const ofCall = z
  .strictObject({
    call: z
      .union([z.string().min(1).max(1_024), z.number()])
      .describe('Id of the call, as the agent sent it.'),
    outcome: z.enum(['safe', 'silent', 'unknown']).describe('What the agent did with what it got.'),
  })
  .meta({ title: 'what came of a call' })

const ofIntent = z
  .strictObject({
    intent: z.string().min(1).max(LONGEST_INTENT).describe('Name of the task: what its calls carry.'),
    outcome: z.enum(['succeeded', 'failed']).describe('How the task ended.'),
    source: z
      .enum(['meta', 'baggage', 'trace', 'header', 'session'])
      .optional()
      .describe('Where its calls carry it, in case that several tasks have this name.'),
    tenant: z.string().max(64).optional().describe('On whose behalf they come, in the same case.'),
  })
  .meta({ title: 'how a task ended' })

const report = z.union([ofCall, ofIntent])
const reports = z.array(report).max(MAX)

/**
 * What gateways cannot see: what agents did with what they got, and how their tasks ended. One report or a list of them,
 * each answered with what it was linked to. If one of a list cannot be read, none is taken.
 */
export function registerAdminOutcomes(
  app: FastifyInstance,
  { clock, chaos, intents }: AdminOutcomesParts,
): void {
  const take = (said: z.output<typeof report>) =>
    'call' in said
      ? { ...said, faults: chaos.engine.accounting.report(said.call, said.outcome) }
      : { intent: said.intent, outcome: said.outcome, ...intents.report(said) }

  // In a scope of its own: how it tells errors is nothing to the others.
  void app.register((scope, _, done) => {
    withPlainErrors(scope)

    scope.post('/admin/outcomes', async (request, reply) => {
      if (!Array.isArray(request.body)) {
        const one = read(report, request.body ?? {}, 'the body')
        return one.ok ? take(one.value) : malformed(reply, one)
      }
      const all = read(reports, request.body, 'the body')
      if (!all.ok) return malformed(reply, all)
      const answers = []
      for (const said of all.value) {
        answers.push(take(said))
        if (answers.length % PER_TURN === 0) await new Promise<void>((resolve) => clock.after(0, resolve))
      }
      return answers
    })
    done()
  })
}
