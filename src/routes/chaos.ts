import type { FastifyInstance, FastifyReply } from 'fastify'
import { z } from 'zod'
import type { Controller } from '../chaos/control/controller.ts'
import { faults as types } from '../chaos/faults/index.ts'
import { faultFindings, type PlanTargets, sparesWrites, targetFindings } from '../chaos/plan/checks.ts'
import type { Fault } from '../chaos/plan/common.ts'
import { ForeignPlanError, fromChaosMonkey, partsOf, targetsOf } from '../chaos/plan/compat/index.ts'
import { faultSchema, withoutSecrets } from '../chaos/plan/schema.ts'
import { formatPath } from '../config/files/places.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { formatDuration } from '../units/duration.ts'
import { malformed, outdated, read, type Read, type RequestFinding, tagged, unreadable } from './answers.ts'

export interface ChaosParts {
  readonly chaos: Controller
  /** Returns the servers that a fault may target; without this function, faults are not checked against servers. */
  readonly targets?: () => PlanTargets
}

const BY = 'runtime API'

/** HTTP status for a well-formed request whose fault cannot be injected now; the same as in mcp-chaos-monkey. */
const REFUSED = 500

/** HTTP status for a request without the token; the same as in mcp-chaos-monkey. */
const unauthorized = 403

const plain = { config: { unauthorized } }
const stops = { config: { unauthorized, stops: true } }

const statusQuery = z.strictObject({
  style: z.enum(['camelCase', 'snake_case']).default('camelCase').describe('How keys are written.'),
})

const renewBody = z.strictObject({
  faultIds: z
    .array(z.string().min(1).max(128))
    .min(1)
    .max(1_000)
    .describe('Ids from /chaos/inject, or names of faults.'),
})

const clearBody = z.strictObject({
  faultId: z.string().min(1).max(128).describe('Id from /chaos/inject, or the name of the fault.'),
})

/**
 * Registers `/chaos/{status,inject,clear,clear-all}`, as in mcp-chaos-monkey. Each request injects or clears faults
 * that have a duration. Status codes are 200, 400 for an unreadable request, 403 without the token, and 500 for a
 * refusal. `/chaos/renew` extends leases: a fault with a lease ends soon after its program has ended.
 */
export function registerChaos(app: FastifyInstance, { chaos, targets }: ChaosParts): void {
  /** The requests of current faults, by id. */
  const asked = new Map<string, RuntimeFaultRequest>()

  /** Removes the requests of faults that have ended. */
  function prune(): void {
    const present = new Set(chaos.runtime.list().map(({ id }) => id))
    for (const id of asked.keys()) if (!present.has(id)) asked.delete(id)
  }

  app.get('/chaos/status', plain, (request, reply) => {
    const query = read(statusQuery, request.query, 'the query')
    if (!query.ok) return malformed(reply, query)
    const { state, faults } = chaos.status()
    const active = faults.flatMap(({ id, armed, remainingMs, hits, type, target, config }) => {
      if (id === undefined || !armed) return []
      const original = asked.get(id)
      return {
        faultId: id,
        // `id` and `requestCount` repeat `faultId` and `hits` under the names of mcp-chaos-monkey.
        id,
        requestCount: hits,
        target: original?.target ?? target,
        type: original?.config.type ?? type,
        config: withoutSecrets(original?.config ?? config),
        remainingMs: Math.round(remainingMs),
        hits,
      }
    })
    return send(tagged(reply, chaos), query.value.style, { state, faults: active })
  })

  app.post('/chaos/inject', plain, (request, reply) => {
    const style = styleOf(request.body)
    const { maxTtl, aliases } = chaos.config
    const parts = { name: chaos.runtime.nextId(), maxTtl, aliases, targets: targets?.() }
    const wanted = readRuntimeFault(restyled(request.body ?? {}, 'camelCase'), parts)
    if (!wanted.ok) return malformed(reply, wanted)
    const stale = outdated(request, reply, chaos)
    if (stale !== undefined) return stale
    const { fault, leaseMs, isProtected, warnings } = wanted.value
    const injected = chaos.runtime.inject(fault, BY, fault.ttl, leaseMs)
    if (!injected.ok) return reply.code(REFUSED).send({ error: injected.why })
    prune()
    asked.set(injected.id, wanted.value)
    const note = {
      ...(isProtected && { note: PROTECTED }),
      ...(warnings.length > 0 && { warnings: warnings.map(({ path, message }) => `${path}: ${message}`) }),
    }
    return send(tagged(reply, chaos), style, {
      faultId: injected.id,
      name: fault.name,
      type: fault.type,
      durationMs: fault.ttl,
      ...note,
    })
  })

  app.post('/chaos/renew', plain, (request, reply) => {
    const body = read(renewBody, restyled(request.body ?? {}, 'camelCase'), 'the body')
    if (!body.ok) return malformed(reply, body)
    return reply.send({ ended: chaos.runtime.renew(body.value.faultIds) })
  })

  app.post('/chaos/clear', stops, (request, reply) => {
    const body = read(clearBody, restyled(request.body ?? {}, 'camelCase'), 'the body')
    if (!body.ok) return malformed(reply, body)
    const stale = outdated(request, reply, chaos)
    if (stale !== undefined) return stale
    const { faultId } = body.value
    // Answers 200 even if the fault has ended before, because the caller's aim is reached.
    const { ok: existed } = chaos.runtime.clear(faultId, BY)
    return tagged(reply, chaos).send({ cleared: faultId, existed })
  })

  app.post('/chaos/clear-all', stops, (request, reply) => {
    const stale = outdated(request, reply, chaos)
    if (stale !== undefined) return stale
    const count = chaos.runtime.clearAll(BY)
    return tagged(reply, chaos).send({ cleared: 'all', count })
  })
}

const send = (reply: FastifyReply, style: Style, answer: object) => reply.send(restyled(answer, style))

/** Default duration of a fault, in milliseconds. */
const DEFAULT_MS = 900_000

/** A request for a fault, its keys in camelCase. */
interface RuntimeFaultRequest {
  readonly target: string
  readonly config: Readonly<Record<string, unknown>>
  readonly fault: Fault
  /** Lease in milliseconds; undefined: the fault outlives the program that made it. */
  readonly leaseMs: number | undefined
  /** True when the request does not decide about tools that may write, so the fault leaves these tools out. */
  readonly isProtected: boolean
  /** Warnings about parts of the request that have no effect now. */
  readonly warnings: readonly RequestFinding[]
}

const PROTECTED = 'tools not known to be read-only are left out; set allowWrites: true to hit these tools too'

const TARGET = 'expected SERVER or SERVER/TOOL, as globs'

const body = z.strictObject({
  target: z
    .string()
    .max(512)
    .regex(/^[^/]+(\/.+)?$/, TARGET)
    .describe('Server or tool to hit.'),
  config: z.record(z.string(), z.unknown()).describe('The fault.'),
  durationMs: z.number().min(0).optional().describe('Duration in milliseconds; 0 ends the fault at once.'),
  allowWrites: z.boolean().optional().describe('Whether it may hit tools not known to be read-only.'),
  leaseMs: z
    .int()
    .min(1_000)
    .max(3_600_000)
    .optional()
    .describe(
      'Ends the fault when nobody renews it for this time, in milliseconds; without a lease, only its duration ends it.',
    ),
})

const fault = faultSchema()

export interface RuntimeFaultParts {
  /** The name of the fault, unless the request's own config names it. */
  readonly name: string
  readonly maxTtl: number
  /** The targets in our format, by the target names of mcp-chaos-monkey. */
  readonly aliases: Readonly<Record<string, string>>
  readonly targets: PlanTargets | undefined
}

/**
 * Reads the body of an injection. The fault has the format of mcp-chaos-monkey, or our own format with a dot in its
 * type. A fault in our format needs neither a name nor a `ttl`.
 */
export function readRuntimeFault(value: unknown, parts: RuntimeFaultParts): Read<RuntimeFaultRequest> {
  const asked = read(body, value, 'the body')
  if (!asked.ok) return asked
  const { target, config, durationMs, allowWrites, leaseMs } = asked.value
  const { name, maxTtl, targets } = parts
  const translated = inOwnWords(asked.value, parts)
  if (!translated.ok) return translated
  const ttl =
    durationMs === undefined
      ? (translated.value.ttl ?? DEFAULT_MS)
      : Math.min(Math.max(1, durationMs), maxTtl)
  // Prefers the name in the request. A fault's draws depend on its name, so a named fault hits the same calls at each
  // injection.
  const parsed = read(fault, { ...translated.value, name: config.name ?? name, ttl }, 'the fault')
  if (!parsed.ok) return parsed
  const limited: Fault = { ...parsed.value, ttl: Math.min(parsed.value.ttl, maxTtl) }
  const found = [
    ...faultFindings(limited, maxTtl, types),
    ...(targets === undefined ? [] : targetFindings([limited], targets, types)).map((finding) => ({
      ...finding,
      path: finding.path.slice(2),
    })),
  ]
  const told = (of: 'error' | 'warning'): RequestFinding[] =>
    found.flatMap(({ severity, path, message }) =>
      severity === of ? { path: formatPath(path), message } : [],
    )
  const findings = told('error')
  if (findings.length > 0) return unreadable('the fault', findings)
  const warnings = [
    ...told('warning'),
    ...(durationMs !== undefined && durationMs > maxTtl
      ? [{ path: 'durationMs', message: `cut to chaos.maxTtl (${formatDuration(maxTtl)})` }]
      : []),
  ]
  const isUnsaid = allowWrites === undefined && config.allowWrites === undefined
  const isProtected = isUnsaid && sparesWrites(limited, types)
  return { ok: true, value: { target, config, fault: limited, leaseMs, isProtected, warnings } }
}

function inOwnWords(
  { target, config, allowWrites }: z.output<typeof body>,
  { aliases, targets }: RuntimeFaultParts,
): Read<Readonly<Record<string, unknown>>> {
  const { type } = config
  try {
    const servers = targets?.servers.map(({ name }) => name)
    const aimed = targetsOf([target], { aliases, ...(servers && { servers }) })(target, ['target'])
    // Reads any type with a dot in our format, even an unknown type, because types of the other format have no dots.
    if (typeof type === 'string' && (type.includes('.') || Object.hasOwn(types, type))) {
      const match = { ...(isObject(config.match) ? config.match : {}), ...matchOf(aimed) }
      const leave = allowWrites === undefined ? {} : { allowWrites }
      return { ok: true, value: { ...config, ...(Object.keys(match).length > 0 && { match }), ...leave } }
    }
    const [own] = fromChaosMonkey({ target: aimed, config }, { ttl: DEFAULT_MS })
    if (own === undefined) return { ok: true, value: {} }
    // The other format has no protected tools. So a fault that never runs a tool more often than requested hits all
    // tools.
    const runsAsAsked = types[own.type]?.runsAsAsked === true
    return { ok: true, value: { ...own, allowWrites: allowWrites ?? runsAsAsked } }
  } catch (error) {
    if (!(error instanceof ForeignPlanError)) throw error
    const hint = error.path.at(-1) === 'type' ? '; types of a plan, such as conn.latency, work too' : ''
    return unreadable('the fault', [{ path: formatPath(error.path), message: error.problem + hint }])
  }
}

function matchOf(target: string): Readonly<Record<string, string>> {
  const { server, tool } = partsOf(target)
  return { ...(server === '*' ? {} : { server }), ...(tool && { tool }) }
}

/** The style of a request's keys; the answer has the same style. */
type Style = 'camelCase' | 'snake_case'

/** Keys whose values are names or data of other programs; no key inside may be renamed. */
const foreign = new Set(['header', 'headers', 'data', 'value', 'values', 'to', 'body'])

/** Returns `snake_case` when any key has a `_`; else `camelCase`. */
function styleOf(value: unknown): Style {
  return keysIn(value).some((key) => key.includes('_')) ? 'snake_case' : 'camelCase'
}

function keysIn(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(keysIn)
  if (!isObject(value)) return []
  return Object.entries(value).flatMap(([key, held]) => [key, ...(foreign.has(key) ? [] : keysIn(held))])
}

/** Returns the value with its keys in a style. When two keys become equal, the last counts. */
function restyled(value: unknown, style: Style): unknown {
  if (Array.isArray(value)) return value.map((item) => restyled(item, style))
  if (!isObject(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, held]) => [
      style === 'camelCase' ? camel(key) : snake(key),
      foreign.has(key) ? held : restyled(held, style),
    ]),
  )
}

const camel = (key: string) => key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
const snake = (key: string) => key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
