import type { ConfigPath } from '../files/places.ts'
import { isPlainMap } from '../schema/server-names.ts'
import type { ConfigFinding } from './issues.ts'

const follows = 'which sets this limit too (see docs/security.md)'
const memory = `set gateway.limits.memory, ${follows}`
const stalled = `set gateway.limits.stalled, ${follows}`
const share = 'set gateway.limits.perClient, such as 0.5: the share of one client in all limits by client'
const fixed = 'this limit is fixed (see docs/security.md)'

/** Removed keys of `gateway`, with their replacements. */
type Old = string | { readonly [key: string]: Old }

const old: Old = {
  sessions: { perClient: share, replayEvents: fixed, replayBytes: fixed, replayTotal: memory },
  limits: {
    perClient: {
      ...{ calls: share, callers: share, connections: share, initializeParams: share },
      ...{ listens: share, pendingInputs: share, answers: share, pipelined: share },
    },
    bodies: {
      ...{ total: memory, perAddress: share, count: `set gateway.maxInFlight, ${follows}` },
      ...{ countPerAddress: share, stalled, whole: stalled },
    },
    replies: { total: memory, perServer: memory },
  },
  unread: { total: memory, perSession: memory, stalled },
}

/** Returns findings about keys of earlier versions in the block `gateway`. */
export function oldKeys(held: unknown, gone = old, path: ConfigPath = ['gateway']): ConfigFinding[] {
  if (typeof gone === 'string')
    return held === undefined ? [] : [{ path, at: 'key', message: `is gone: ${gone}` }]
  if (!isPlainMap(held)) return []
  return Object.entries(gone).flatMap(([key, inner]) => oldKeys(held[key], inner, [...path, key]))
}
