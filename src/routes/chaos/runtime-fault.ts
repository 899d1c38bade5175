import { z } from 'zod'
import { faults as types } from '../../chaos/faults/index.ts'
import { faultFindings, targetFindings, type PlanTarget } from '../../chaos/plan/checks.ts'
import type { Fault } from '../../chaos/plan/common.ts'
import { ForeignPlanError, fromChaosMonkey } from '../../chaos/plan/compat/index.ts'
import { faultSchema } from '../../chaos/plan/schema.ts'
import { formatPath } from '../../config/files/path.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { read, unreadable, type Finding, type Read } from './answers.ts'

/** How long a fault stays unless its request says so, in milliseconds. */
export const DEFAULT_MS = 900_000

/** What a request asks for, its keys in camelCase. */
export interface Asked {
  readonly target: string
  readonly config: Readonly<Record<string, unknown>>
  readonly fault: Fault
}

const TARGET = 'expected SERVER or SERVER/TOOL, as globs'

const body = z.strictObject({
  target: z
    .string()
    .regex(/^[^/]+(\/.+)?$/, TARGET)
    .describe('What it hits.'),
  config: z.record(z.string(), z.unknown()).describe('The fault.'),
  durationMs: z.number().min(0).optional().describe('How long, in milliseconds; 0 is the default.'),
  allowWrites: z.boolean().optional().describe('Whether it may hit tools not known to be read-only.'),
})

const fault = faultSchema()

export interface RuntimeFaultParts {
  /** Under which name it goes. */
  readonly name: string
  readonly maxTtl: number
  readonly targets: readonly PlanTarget[] | undefined
}

/**
 * Reads the body of an injection: a fault config of mcp-chaos-monkey, or a fault of ours, whose type has a dot in it.
 * A fault of ours needs neither a name nor a `ttl`.
 */
export function readRuntimeFault(value: unknown, parts: RuntimeFaultParts): Read<Asked> {
  const asked = read(body, value, 'the body')
  if (!asked.ok) return asked
  const { target, config, durationMs, allowWrites } = asked.value
  const translated = inOwnWords(target, config, allowWrites)
  if (!translated.ok) return translated
  const { name, maxTtl, targets } = parts
  const ttl = durationMs ? Math.min(durationMs, maxTtl) : (translated.value.ttl ?? DEFAULT_MS)
  const parsed = read(fault, { ...translated.value, name, ttl }, 'the fault')
  if (!parsed.ok) return parsed
  const limited: Fault = { ...parsed.value, ttl: Math.min(parsed.value.ttl, maxTtl) }
  const findings: Finding[] = [
    ...faultFindings(limited, maxTtl, types),
    ...(targets === undefined ? [] : targetFindings([limited], targets, types)).map((finding) => ({
      ...finding,
      path: finding.path.slice(2),
    })),
  ]
    .filter(({ severity }) => severity === 'error')
    .map(({ path, message }) => ({ path: formatPath(path), message }))
  if (findings.length > 0) return unreadable('the fault', findings)
  return { ok: true, value: { target, config, fault: limited } }
}

function inOwnWords(
  target: string,
  config: Readonly<Record<string, unknown>>,
  allowWrites: boolean | undefined,
): Read<Readonly<Record<string, unknown>>> {
  const leave = allowWrites === undefined ? {} : { allowWrites }
  const { type } = config
  // A type with a dot that there is not gets our words too: the other format has none.
  if (typeof type === 'string' && (type.includes('.') || Object.hasOwn(types, type))) {
    const match = { ...(isObject(config.match) ? config.match : {}), ...matchOf(target) }
    const aimed = Object.keys(match).length > 0 ? { match } : {}
    return { ok: true, value: { ...config, ...aimed, ...leave } }
  }
  try {
    // Its users know no tools that may not be hit.
    const options = { ttl: DEFAULT_MS, allowWrites: allowWrites ?? true }
    const [own = {}] = fromChaosMonkey({ target, config }, options)
    return { ok: true, value: own }
  } catch (error) {
    if (!(error instanceof ForeignPlanError)) throw error
    const hint = error.path.at(-1) === 'type' ? '; those of a plan, such as conn.latency, will do too' : ''
    return unreadable('the fault', [{ path: formatPath(error.path), message: error.message + hint }])
  }
}

function matchOf(target: string): Readonly<Record<string, string>> {
  const slash = target.indexOf('/')
  const [server, tool] = slash === -1 ? [target] : [target.slice(0, slash), target.slice(slash + 1)]
  return { ...(server === '*' || server === undefined ? {} : { server }), ...(tool && { tool }) }
}
