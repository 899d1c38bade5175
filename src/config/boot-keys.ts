import { isDeepStrictEqual } from 'node:util'
import { isPlainMap } from './schema/server-names.ts'
import type { Config, GatewayConfig } from './schema/schema.ts'

/** Blocks that a reload cannot change: their values are fixed when the process starts. */
const bootBlocks = [
  'gateway',
  'telemetry.traces',
  'telemetry.metrics.semanticConventions',
  'telemetry.metrics.endpoint',
]

/** Keys within `bootBlocks` that a reload can change. */
const liveKeys = [
  'gateway.listTimeout',
  'gateway.ready',
  'gateway.drain',
  'gateway.allowedHosts',
  'gateway.allowedOrigins',
  'gateway.maxInFlight',
  'gateway.limits',
] as const satisfies readonly `gateway.${keyof GatewayConfig}`[]

/** Path to a value within nested maps. */
type KeyPath = readonly string[]

/** Returns the differing keys whose change needs a restart, for example `gateway.sessions.max`. */
export function bootChanges(boot: Config, next: Config): string[] {
  return changedAtBoot(boot, next).map((path) => path.join('.'))
}

/** Returns the config in force after a reload: `next`, with the boot values of every key fixed at boot. */
export function keepBootKeys(boot: Config, next: Config): Config {
  return changedAtBoot(boot, next).reduce((config, path) => replaced(config, path, valueAt(boot, path)), next)
}

function changedAtBoot(boot: Config, next: Config): KeyPath[] {
  // Only the blocks with boot keys are compared, because a config may have a thousand servers.
  const blocks = ({ gateway, telemetry: { traces, metrics } }: Config) => ({
    gateway,
    telemetry: { traces, metrics },
  })
  const changed = differing(blocks(boot), blocks(next))
  return changed.filter((path) => isWithin(path, bootBlocks) && !isWithin(path, liveKeys))
}

function isWithin(path: KeyPath, places: readonly string[]): boolean {
  return places.some((place) => place.split('.').every((key, index) => path[index] === key))
}

function differing(a: object, b: object): KeyPath[] {
  const before = new Map<string, unknown>(Object.entries(a))
  const after = new Map<string, unknown>(Object.entries(b))
  return [...new Set([...before.keys(), ...after.keys()])].flatMap((key) => {
    const [from, to] = [before.get(key), after.get(key)]
    if (isPlainMap(from) && isPlainMap(to)) return differing(from, to).map((inner) => [key, ...inner])
    return isDeepStrictEqual(from, to) ? [] : [[key]]
  })
}

function valueAt(map: object, [key, ...inner]: KeyPath): unknown {
  const value: unknown = Object.entries(map).find(([name]) => name === key)?.[1]
  return inner.length > 0 && isPlainMap(value) ? valueAt(value, inner) : value
}

/** Returns the map with another value in one place; undefined removes the value. */
function replaced<T extends object>(map: T, [key = '', ...inner]: KeyPath, value: unknown): T {
  const copy = { ...map } as Record<string, unknown>
  const there = copy[key]
  copy[key] = inner.length > 0 && isPlainMap(there) ? replaced(there, inner, value) : value
  if (copy[key] === undefined) Reflect.deleteProperty(copy, key)
  return copy as T
}

export type ReloadReport =
  | {
      readonly ok: true
      readonly hash: string
      /** Keys changed in the file whose new values take effect only after a restart of the process. */
      readonly needsRestart: readonly string[]
      readonly warnings: readonly string[]
    }
  | { readonly ok: false; readonly errors: readonly string[] }
