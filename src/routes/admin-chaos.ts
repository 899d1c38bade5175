import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Controller } from '../chaos/control/controller.ts'
import type { PlanTarget } from '../chaos/plan/checks.ts'
import { withoutSecrets } from '../chaos/plan/without-secrets.ts'
import type { Clock } from '../mesh/clock.ts'
import { malformed, read, withPlainErrors } from './chaos/answers.ts'
import { readPlan } from './chaos/plan.ts'
import { registerStarts, registerStops, SOMEBODY } from './chaos/switches.ts'
import { registerViews } from './chaos/views.ts'

export interface AdminChaosParts {
  readonly chaos: Controller
  readonly clock: Clock
  /** The servers that a plan may aim at; unless it is given, plans are not checked against them. */
  readonly targets?: () => readonly PlanTarget[]
}

const putQuery = z.strictObject({
  by: z.string().min(1).max(128).default(SOMEBODY).describe('Who does it.'),
})

/** The chaos mesh, for operators: its state, its plan, its switches, what it decided. */
export function registerAdminChaos(app: FastifyInstance, { chaos, clock, targets }: AdminChaosParts): void {
  // Each in a scope of its own: what one does to reading bodies or telling errors is nothing to the others.
  const within = (register: (scope: FastifyInstance) => void) =>
    void app.register((scope, _, done) => {
      register(scope)
      done()
    })
  within((scope) => registerStops(scope, chaos))
  within((scope) => registerStarts(scope, chaos))
  within((scope) => registerViews(scope, chaos, clock))
  within((scope) => {
    withPlainErrors(scope)

    scope.get('/admin/chaos', () => withoutSecrets(chaos.status()))

    /** The plan of this process from now on, until a config is loaded whose block `chaos` is another one than before. */
    scope.put('/admin/chaos', (request, reply) => {
      const query = read(putQuery, request.query, 'the query')
      if (!query.ok) return malformed(reply, query)
      const plan = readPlan(request.body, chaos.config, targets?.())
      if (!plan.ok) return malformed(reply, plan)
      const { seed, mode, faults } = plan.value
      chaos.apply({ ...chaos.config, seed, mode, faults }, query.value.by)
      return reply.send(withoutSecrets(chaos.status()))
    })
  })
}
