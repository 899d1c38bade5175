import type { ServerFacts } from '../../src/mesh/compile.ts'

/** A server with one replica that keeps no state of its callers. */
export function testTarget(known: Partial<ServerFacts> = {}): ServerFacts {
  return {
    endpoints: ['endpoint'],
    facts: () => undefined,
    offers: () => false,
    effectOf: () => 'unknown',
    home: () => undefined,
    homes: () => undefined,
    mayMove: true,
    leave: () => undefined,
    backAt: () => -Infinity,
    isLost: () => false,
    reached: () => undefined,
    hold: () => () => undefined,
    ...known,
  }
}
