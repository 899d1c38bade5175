import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Done } from '../../chaos/control/controller-parts.ts'
import type { Controller } from '../../chaos/control/controller.ts'
import { withoutSecrets } from '../../chaos/plan/without-secrets.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { malformed, read, refused, withPlainErrors } from './answers.ts'

/** Who does it, when a request does not say. */
export const SOMEBODY = 'admin API'
const NO_REASON = 'no reason given'

const attribution = z
  .strictObject({
    by: z.string().min(1).max(128).default(SOMEBODY).describe('Who does it.'),
    why: z.string().min(1).max(512).default(NO_REASON).describe('What for.'),
  })
  .prefault({})

/** Most that is read of why somebody stops it, in bytes. */
const MOST_WORDS = 16 * 1024

type Turn = (chaos: Controller, by: string, why: string) => Done

const turns: Readonly<Record<string, Turn>> = {
  arm: (chaos, by, why) => chaos.arm(by, why),
  unkill: (chaos, by, why) => chaos.unkill(by, why),
  renew: (chaos, by) => chaos.renew(by),
}

/** `POST /admin/chaos/{arm,unkill,renew}`: starting asks for a request that can be read. */
export function registerStarts(scope: FastifyInstance, chaos: Controller): void {
  withPlainErrors(scope)
  for (const [name, turn] of Object.entries(turns)) {
    scope.post(`/admin/chaos/${name}`, (request, reply) => {
      const body = read(attribution, request.body ?? {}, 'the body')
      if (!body.ok) return malformed(reply, body)
      const { by, why } = body.value
      return refused(reply, turn(chaos, by, why)) ?? reply.send(withoutSecrets(chaos.status()))
    })
  }
}

/**
 * `POST /admin/chaos/{kill,disarm}`: stopping works whatever is wrong with the request, and asks nothing of the engine
 * but to stop. The answer of `kill` comes from the switch alone.
 */
export function registerStops(scope: FastifyInstance, chaos: Controller): void {
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
        // A body that is too long, or cut off, is no reason to go on either.
        stop(undefined)
        void reply.code(error.statusCode ?? 500).send({ error: `${error.message}; stopped all the same` })
      },
    })
  }
}

/** Who stops it and why, as far as that can be made out. */
function attributed(body: unknown): { readonly by: string; readonly why: string } {
  const said = typeof body === 'string' ? parseJson(body) : undefined
  const { by, why } = isObject(said) ? said : {}
  return {
    by: typeof by === 'string' && by !== '' ? by.slice(0, 128) : SOMEBODY,
    why: typeof why === 'string' && why !== '' ? why.slice(0, 512) : NO_REASON,
  }
}
