import type { FastifyInstance, FastifyReply } from 'fastify'
import { z } from 'zod'
import type { Controller } from '../chaos/control/controller.ts'
import type { PlanTarget } from '../chaos/plan/checks.ts'
import { withoutSecrets } from '../chaos/plan/without-secrets.ts'
import { malformed, read, refused, withPlainErrors } from './chaos/answers.ts'
import { type Asked, readRuntimeFault } from './chaos/runtime-fault.ts'
import { restyled, type Style, styleOf } from './chaos/style.ts'

export interface ChaosParts {
  readonly chaos: Controller
  /** The servers that a fault may aim at; unless it is given, faults are not checked against them. */
  readonly targets?: () => readonly PlanTarget[]
}

const BY = 'runtime API'

const STOPS = { config: { stops: true } } as const

const statusQuery = z.strictObject({
  style: z.enum(['camelCase', 'snake_case']).default('camelCase').describe('How keys are written.'),
})

const clearBody = z.strictObject({ faultId: z.string().min(1).max(128).describe('What injecting gave.') })

/** Faults one by one, each for a time: `/chaos/{status,inject,clear,clear-all}`, as mcp-chaos-monkey has them. */
export function registerChaos(app: FastifyInstance, parts: ChaosParts): void {
  void app.register((scope, _, done) => {
    registerWithin(scope, parts)
    done()
  })
}

function registerWithin(scope: FastifyInstance, { chaos, targets }: ChaosParts): void {
  /** Faults as they were asked for, by id. */
  const asked = new Map<string, Asked>()
  let named = 0

  /** The next number whose name no fault has: it is used up by a fault only, as names decide the draws. */
  function nextNumber(): number {
    const taken = new Set(chaos.status().faults.map(({ name }) => name))
    let number = named + 1
    while (taken.has(nameOf(number))) number++
    return number
  }

  /** Forgets what ended. */
  function prune(): void {
    const present = new Set(chaos.runtime.list().map(({ id }) => id))
    for (const id of asked.keys()) if (!present.has(id)) asked.delete(id)
  }

  withPlainErrors(scope)

  scope.get('/chaos/status', (request, reply) => {
    const query = read(statusQuery, request.query, 'the query')
    if (!query.ok) return malformed(reply, query)
    const { state, faults } = chaos.status()
    const active = faults.flatMap(({ id, armed, remainingMs, hits, type, target, config }) => {
      if (id === undefined || !armed) return []
      const original = asked.get(id)
      return {
        faultId: id,
        target: original?.target ?? target,
        type: original?.config.type ?? type,
        config: withoutSecrets(original?.config ?? config),
        remainingMs: Math.round(remainingMs),
        hits,
      }
    })
    return send(reply, query.value.style, { state, faults: active })
  })

  scope.post('/chaos/inject', (request, reply) => {
    const style = styleOf(request.body)
    const { maxTtl } = chaos.config
    const number = nextNumber()
    const parts = { name: nameOf(number), maxTtl, targets: targets?.() }
    const wanted = readRuntimeFault(restyled(request.body ?? {}, 'camelCase'), parts)
    if (!wanted.ok) return malformed(reply, wanted)
    const { fault } = wanted.value
    const injected = chaos.runtime.inject(fault, BY)
    if (!injected.ok) return refused(reply, injected)
    named = number
    prune()
    asked.set(injected.id, wanted.value)
    return send(reply, style, { faultId: injected.id, durationMs: fault.ttl })
  })

  scope.post('/chaos/clear', STOPS, (request, reply) => {
    const body = read(clearBody, restyled(request.body ?? {}, 'camelCase'), 'the body')
    if (!body.ok) return malformed(reply, body)
    const { faultId } = body.value
    const cleared = chaos.runtime.clear(faultId, BY)
    if (!cleared.ok) return reply.code(404).send({ error: cleared.why })
    return reply.send({ cleared: faultId })
  })

  scope.post('/chaos/clear-all', STOPS, (_, reply) =>
    reply.send({ cleared: 'all', count: chaos.runtime.clearAll(BY) }),
  )
}

const nameOf = (number: number) => `runtime-${number}`

const send = (reply: FastifyReply, style: Style, answer: object) => reply.send(restyled(answer, style))
