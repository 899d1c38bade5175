import assert from 'node:assert/strict'
import { until } from '../../support/until.ts'
import type { Seen, Stage } from '../support/stage.ts'
import { answered, atLeast, brokeOff, failed, ranOnce, type Entries } from './entry.ts'

const DELAY_MS = 400

/** Longer than a call takes, even on a busy machine. */
const HOLD_MS = 1_500

const isHttp = ({ place: { transport } }: Seen) => transport !== 'stdio'

/** Returns the bytes on the faulty wire: of the server's answer, or of the reply to the agent. */
const sizeOf = (seen: Seen): number =>
  seen.place.side === 'client' ? seen.exchange().body.length : seen.gave('tools/call')[0]!.text.length

/** Checks that the request found nobody at this place. */
function unreachable(seen: Seen, at = 0): string {
  const exchange = seen.exchange(at)
  assert.equal(seen.calls.length, at)
  if (seen.place.side === 'client') {
    brokeOff(exchange)
    return 'RST before the head; no call at the server'
  }
  failed(exchange, 'upstream_unavailable', false)
  if (!isHttp(seen)) return 'nothing written; the agent: upstream_unavailable'
  // A connection from before the call may have ended without a request, for instance after a restart of the server's
  // session.
  const since = seen.exchange(0).sentAt
  const begunBy = seen.connections
    .filter((connection) => connection.at > since)
    .map((connection) => seen.received.find((one) => one.connection === connection))
  const begunByCalls = begunBy.filter((first) => first === undefined || first.message.method === 'tools/call')
  assert.equal(begunByCalls.length, at)
  return 'no connection; the agent: upstream_unavailable'
}

/** Plays `count` calls in sequence, until every connection to the server has brought its request or has ended. */
const calls = (count: number) => async (stage: Stage) => {
  const agent = await stage.agent()
  for (let left = count; left > 0; left--) await agent.call('echo').over
  const { seen } = stage
  await until('no connection is idle', () =>
    stage.server.connections.every(
      (connection) =>
        connection.end !== undefined || seen.received.some((one) => one.connection === connection),
    ),
  )
}

/** Plays a large answer, or the end of its connection. */
async function large(stage: Stage): Promise<void> {
  const agent = await stage.agent()
  const exchange = agent.call('large')
  await exchange.over
  if (stage.place.side === 'client' || exchange.result !== undefined) return
  await until('the connection of the call has ended', () => stage.seen.calls[0]?.connection.end !== undefined)
}

/** One call of a server behind TLS. */
async function overTls(stage: Stage): Promise<void> {
  if (stage.place.transport !== 'stdio') stage.use('secure')
  await calls(1)(stage)
}

/** Faults on the wire between the gateway and its peers. */
export const connectionEntries: Entries = {
  'conn.refused': {
    play: calls(1),
    saw: (seen) => unreachable(seen),
  },
  'conn.dns': {
    play: calls(1),
    saw(seen) {
      const what = unreachable(seen)
      assert.match(String(seen.exchange().error?.message), /ENOTFOUND/)
      return `${what}, ENOTFOUND`
    },
  },
  'conn.tls': {
    play: overTls,
    saw(seen) {
      const what = unreachable(seen)
      assert.match(String(seen.exchange().error?.message), /CERT_HAS_EXPIRED/)
      return `${what}, CERT_HAS_EXPIRED`
    },
  },
  'conn.reset': {
    fault: { at: { afterBytes: 30 } },
    play: large,
    saw(seen) {
      ranOnce(seen)
      const exchange = seen.exchange()
      if (seen.place.side === 'client') {
        assert.deepEqual([exchange.status, exchange.body.length, exchange.end], [200, 30, 'RST'])
        return 'RST behind 30 bytes of the body'
      }
      assert.equal(seen.calls[0]!.connection.end, 'RST')
      failed(exchange, 'upstream_disconnected', true)
      return 'RST while the server writes; the agent: upstream_disconnected'
    },
  },
  'conn.half_open': {
    fault: { hold: HOLD_MS, then: 'fail' },
    saw(seen) {
      ranOnce(seen)
      const exchange = seen.exchange()
      if (seen.place.side === 'client') {
        brokeOff(exchange)
        return 'the server answers; then no byte, and RST'
      }
      failed(exchange, 'upstream_disconnected', true)
      atLeast(HOLD_MS, exchange.sentAt, exchange.firstAt)
      return `the server answers; after ${HOLD_MS} ms the agent: upstream_disconnected`
    },
  },
  'conn.latency': {
    fault: { distribution: { kind: 'fixed', delay: DELAY_MS } },
    saw(seen) {
      ranOnce(seen)
      answered(seen.exchange())
      atLeast(DELAY_MS, seen.exchange().sentAt, seen.calls[0]!.at)
      return `the call comes to the server ${DELAY_MS} ms after it was sent`
    },
  },
  'conn.bandwidth': {
    fault: { kibPerSecond: 0.5 },
    saw(seen) {
      ranOnce(seen)
      const exchange = seen.exchange()
      answered(exchange)
      const bytes = sizeOf(seen)
      // The first portion goes out at once.
      atLeast(((bytes - 26) / 512) * 1000, seen.gave('tools/call')[0]!.at, exchange.lastAt)
      if (seen.place.side === 'upstream') return '512 bytes a second of what the server sent at once'
      assert.ok(exchange.portions.length > 1, `${exchange.portions.length} portions`)
      return 'portion by portion, 512 bytes a second'
    },
  },
  'conn.slow_drip': {
    fault: { chunk: 16, gap: '20ms' },
    saw(seen) {
      ranOnce(seen)
      const exchange = seen.exchange()
      answered(exchange)
      const bytes = sizeOf(seen)
      atLeast((Math.floor(bytes / 16) - 1) * 20, seen.gave('tools/call')[0]!.at, exchange.lastAt)
      if (seen.place.side === 'upstream') return '16 bytes every 20 ms of what the server sent at once'
      // Two writes may arrive in one read.
      assert.ok(exchange.portions.slice(0, -1).every(({ length }) => length % 16 === 0))
      assert.ok(exchange.portions.length > 1, `${exchange.portions.length} portions`)
      return '16 bytes every 20 ms'
    },
  },
  'conn.flap': {
    fault: { up: '1ms', down: '1h' },
    play: calls(2),
    saw(seen) {
      answered(seen.exchange(0))
      return `one call passes; of the next: ${unreachable(seen, 1)}`
    },
  },
  failure_domain: {
    play: calls(1),
    saw: (seen) => unreachable(seen),
  },
}
