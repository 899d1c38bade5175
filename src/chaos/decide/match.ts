import type { Call } from '../../mesh/call.ts'
import { glob, matcher, type Matcher } from '../../mesh/match.ts'
import type { Fault } from '../plan/common.ts'

/** A compiled target. */
export interface Target {
  /** Whether calls of this kind can be hit at all: the same for all of them, so that the answer can be kept. */
  readonly subject: Matcher
  /** Whether this very call is meant. */
  readonly call: (call: Call) => boolean
}

/** Compiles what a fault aims at. `methods`: those that its type can hit. `armOf`: the arm that a call runs in. */
export function targetOf(
  { match = {} }: Fault,
  methods: readonly string[],
  armOf: (call: Call) => string | undefined,
): Target {
  const holds = matcher(match)
  const hit = new Set(methods)
  const tenant = match.tenant === undefined ? undefined : glob(match.tenant)
  const arm = match.arm === undefined ? undefined : glob(match.arm)
  const headers = Object.entries(match.header ?? {}).map(([name, pattern]) => [name, glob(pattern)] as const)

  function isMeant(call: Call): boolean {
    if (tenant !== undefined && !tenant(call.tenant)) return false
    if (arm !== undefined && !arm(armOf(call) ?? '')) return false
    return headers.every(([name, value]) => {
      const held = Object.hasOwn(call.inbound, name) ? call.inbound[name] : undefined
      return held !== undefined && value(typeof held === 'string' ? held : held.join(', '))
    })
  }

  return {
    subject: (server, method, tool) => hit.has(method) && holds(server, method, tool),
    call: isMeant,
  }
}
