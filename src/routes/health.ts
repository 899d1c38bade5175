import type { FastifyInstance } from 'fastify'
import type { Live } from '../mesh/live.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Server } from '../registry/server.ts'
import { roundedDuration } from '../units/duration.ts'

export interface HealthParts {
  readonly live: Live<GatewayGeneration>
  /** True from the first shutdown signal on. */
  readonly isStopping: () => boolean
}

/**
 * Registers `/livez` (aliases `/healthz`, `/health`), which succeeds while the process serves, and `/readyz`, which
 * succeeds while the condition `gateway.ready` is true. A down server never fails `/livez`, because a restart of the
 * gateway does not help the server.
 */
export function registerHealth(app: FastifyInstance, { live, isStopping }: HealthParts): void {
  for (const url of ['/livez', '/healthz', '/health']) {
    app.get(url, (_, reply) => reply.send({ status: 'ok' }))
  }

  app.get('/readyz', (_, reply) => {
    const { servers, config } = live.current
    const states = Object.fromEntries([...servers.values()].map(({ name, state }) => [name, state]))
    const up = Object.values(states).filter((state) => state === 'up').length
    const enough = { always: true, any: up > 0, all: up === servers.size }[config.gateway.ready]
    const ready = enough && !isStopping()
    const status = ready ? 'ready' : isStopping() ? 'stopping' : 'not ready'
    return reply
      .code(ready ? 200 : 503)
      .send({ status, servers: states, ...reasonsIn(servers.values()), ...startingIn(servers.values()) })
  })
}

/**
 * Returns the failure reasons of servers, including servers that are up; an empty object while all servers are well.
 */
function reasonsIn(servers: Iterable<Server>) {
  const known = [...servers].flatMap(({ name, failureReason }) =>
    failureReason === undefined ? [] : [[name, failureReason] as const],
  )
  return known.length === 0 ? {} : { reasons: Object.fromEntries(known) }
}

/** Returns the time since the start of each process that is not up yet. */
function startingIn(servers: Iterable<Server>) {
  const known = [...servers].flatMap(({ name, starting }) =>
    starting === undefined ? [] : [[name, roundedDuration(starting.forMs)] as const],
  )
  return known.length === 0 ? {} : { starting: Object.fromEntries(known) }
}
