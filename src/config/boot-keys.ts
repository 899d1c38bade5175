import { isDeepStrictEqual } from 'node:util'
import { isPlainMap } from './schema/plain-map.ts'
import type { Config, GatewayConfig } from './schema/schema.ts'

/** Keys of `gateway` that a reload changes; all others are fixed when the process starts. */
const liveKeys = [
  'listTimeout',
  'ready',
  'drain',
  'allowedHosts',
  'allowedOrigins',
  'maxInFlight',
] as const satisfies readonly (keyof GatewayConfig)[]

/** The keys whose change takes a restart, such as `gateway.sessions.max`, of those that differ. */
export function bootChanges(old: Config, next: Config): string[] {
  return differing(old.gateway, next.gateway)
    .filter((key) => !(liveKeys as readonly string[]).includes(key))
    .map((key) => `gateway.${key}`)
}

/** What is in force after a reload: the live keys of `next`, the others as they were at boot. */
export function keepBootKeys(boot: GatewayConfig, next: GatewayConfig): GatewayConfig {
  return { ...boot, ...Object.fromEntries(liveKeys.map((key) => [key, next[key]])) }
}

/** Keys within two maps whose values differ, as paths. */
function differing(a: object, b: object): string[] {
  const before = new Map<string, unknown>(Object.entries(a))
  const after = new Map<string, unknown>(Object.entries(b))
  return [...new Set([...before.keys(), ...after.keys()])].flatMap((key) => {
    const [from, to] = [before.get(key), after.get(key)]
    if (isPlainMap(from) && isPlainMap(to)) return differing(from, to).map((inner) => `${key}.${inner}`)
    return isDeepStrictEqual(from, to) ? [] : [key]
  })
}
