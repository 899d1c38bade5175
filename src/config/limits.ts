import type { GatewayConfig } from './schema/schema.ts'

/** Returns all limits derived from a few settings: numbers, bytes, and times in milliseconds. */
export function limitsOf({ maxInFlight, sessions, limits }: GatewayConfig) {
  const { connections, memory, perClient, stalled } = limits
  const part = (percent: number) => Math.floor((memory * percent) / 100)
  const ofClient = (max: number) => Math.max(1, Math.floor(max * perClient))
  const share = (max: number) => ({ max, perClient: ofClient(max) })
  const total = part(10)
  const count = 2 * maxInFlight
  return {
    shares: {
      calls: share(maxInFlight),
      callers: share(1_024),
      connections: share(connections),
      initializeParams: share(part(20)),
      listens: share(sessions.max),
      pendingInputs: share(Math.ceil(maxInFlight / 2)),
      answers: share(total),
      // Each pipelined request takes up to 10 KB.
      pipelined: share(4_096),
      sessions: share(sessions.max),
    },
    bodies: {
      total,
      perAddress: ofClient(total),
      count,
      countPerAddress: ofClient(count),
      stalled: Math.round(stalled / 3),
      whole: 2 * stalled,
    },
    replies: { total: part(40), perServer: part(20) },
    unread: { total, perSession: Math.floor(total / 4), stalled },
    replay: { total, events: 256, bytes: 512 * 1024 },
  }
}
