import { z } from 'zod'
import { isObject } from '../../../protocol/jsonrpc.ts'
import { formatDuration } from '../../../units/duration.ts'
import { meaningOf } from './chaos-monkey-types.ts'
import {
  commonOf,
  ForeignPlanError,
  read,
  type FaultConfig,
  type ForeignOptions,
  type Path,
} from './foreign.ts'

const aimedSchema = z.strictObject({
  target: z.string().min(1),
  config: z.record(z.string(), z.unknown()),
  durationMs: z.int().min(0).optional(),
})

const scenarioSchema = z.strictObject({
  name: z.string().optional(),
  description: z.string().optional(),
  faults: z.array(z.unknown()),
  expectedBehavior: z.string().optional(),
  assertions: z.array(z.string()).optional(),
})

/**
 * The faults of mcp-chaos-monkey, named after their type and place: a scenario, a list, a single fault with its target,
 * or a bare fault config, which is aimed at everything. Keys may be camelCase or snake_case. A target is a glob over
 * servers, or SERVER/TOOL. Throws `ForeignPlanError`.
 */
export function fromChaosMonkey(config: unknown, options: ForeignOptions): readonly FaultConfig[] {
  if (Array.isArray(config)) return config.map((entry, index) => translated(entry, index, [index], options))
  const whole = camelCased(config, [])
  if (!('faults' in whole)) return [translated(config, 0, [], options)]
  const { faults } = read(scenarioSchema, whole, [], 'a scenario')
  return faults.map((entry, index) => translated(entry, index, ['faults', index], options))
}

function translated(entry: unknown, index: number, path: Path, options: ForeignOptions): FaultConfig {
  const cased = camelCased(entry, path)
  const isBare = !('config' in cased) && !('target' in cased)
  const aimed = read(aimedSchema, isBare ? { target: '*', config: cased } : cased, path, 'a fault')
  const { target, durationMs } = aimed
  const within = isBare ? path : [...path, 'config']
  const { type, what } = meaningOf(camelCased(aimed.config, within), within)
  const { ttl, ...common } = commonOf(options)
  return {
    name: `${type}-${index + 1}`,
    ...what,
    ...matchOf(target),
    // Theirs never end without a duration, and none is what 0 says.
    ttl: durationMs === undefined || durationMs === 0 ? ttl : formatDuration(durationMs),
    ...common,
  }
}

function matchOf(target: string): { readonly match?: { readonly server?: string; readonly tool?: string } } {
  const slash = target.indexOf('/')
  if (slash === -1) return target === '*' ? {} : { match: { server: target } }
  const [server, tool] = [target.slice(0, slash), target.slice(slash + 1)]
  return { match: server === '*' ? { tool } : { server, tool } }
}

/** The same members under names in camelCase. */
function camelCased(value: unknown, path: Path): Record<string, unknown> {
  if (!isObject(value)) throw new ForeignPlanError(path, 'expected an object')
  const cased: Record<string, unknown> = {}
  for (const [key, member] of Object.entries(value)) {
    const name = key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
    if (Object.hasOwn(cased, name))
      throw new ForeignPlanError([...path, key], `is there twice: as ${name} and in snake_case`)
    cased[name] = member
  }
  return cased
}
