import type { ControllerParts } from '../../src/chaos/control/controller-parts.ts'
import { Controller } from '../../src/chaos/control/controller.ts'
import { injector } from '../../src/chaos/firing/engine.ts'
import type { PlanTargets } from '../../src/chaos/plan/checks.ts'
import { chaos } from '../../src/chaos/plan/schema.ts'
import type { Call } from '../../src/mesh/call.ts'
import { registerAdminChaos } from '../../src/routes/admin-chaos.ts'
import { registerChaos } from '../../src/routes/chaos.ts'
import { demandToken } from '../../src/downstream/http/server.ts'
import { answer, faultEnvironment } from '../chaos/rig.ts'
import { ManualClock } from '../support/manual-clock.ts'

import Fastify, { type FastifyInstance, type InjectOptions } from 'fastify'

export const TOKEN = 'sixteen-letters-or-more'

/** A controller of real faults behind its routes, and a server that every call reaches through the controller. */
export function chaosApp(
  more: Partial<ControllerParts> & {
    /** Whether reads need no token; true unless the config sets a token. */
    openToRead?: boolean
    targets?: () => PlanTargets
    config?: object
  } = {},
) {
  const clock = new ManualClock()
  const { targets, config = {}, openToRead = true, ...parts } = more
  const controller = new Controller({
    clock,
    faultEnvironment,
    environment: 'test',
    variables: {},
    effectOf: () => 'read_only',
    emit: () => undefined,
    ...parts,
  })
  controller.apply(chaos.parse({ enabled: true, ...config }))
  const app: FastifyInstance = Fastify()
  demandToken(app, { token: TOKEN, openToRead })
  registerAdminChaos(app, { chaos: controller, clock, ...(targets && { targets }) })
  registerChaos(app, { chaos: controller, ...(targets && { targets }) })
  const way = injector('upstream', controller.engine)(() => Promise.resolve(answer()))

  async function ask(method: 'GET' | 'POST' | 'PUT', url: string, body?: unknown, more: InjectOptions = {}) {
    const payload = body === undefined ? {} : { payload: body as object }
    const headers = { authorization: `Bearer ${TOKEN}`, ...more.headers }
    const response = await app.inject({ method, url, ...payload, ...more, headers })
    return { status: response.statusCode, body: response.json(), headers: response.headers }
  }

  return {
    app,
    clock,
    controller,
    ask,
    /** Sends a call and returns a summary of the agent's reply. */
    send: (call: Call) =>
      way(call).then((outcome) => {
        controller.engine.account(call, outcome)
        return outcome
      }),
  }
}

/** An instant fault that always hits. */
export const failing = (name: string, more: object = {}) => ({
  name,
  type: 'rpc.error',
  rate: 1,
  ttl: '15m',
  ...more,
})
