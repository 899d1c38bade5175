import assert from 'node:assert/strict'
import { until } from '../../support/until.ts'
import type { Place, Seen, Stage } from '../support/stage.ts'
import type { Exchange } from '../support/wire-agent.ts'
import { atLeast, shown, type Entries } from './entry.ts'

const STALL_MS = 1_000

/** Interval between two changes the server announces, in milliseconds. */
const AGAIN_MS = 300

const CHANGED = 'notifications/tools/list_changed'

const changesIn = ({ messages }: Exchange) => messages.filter(({ method }) => method === CHANGED).length

/** Messages before the fault: the modern era's acknowledgement of the stream, and `changes` changes. */
const behind = (changes: number, { era }: Place) => ({ afterEvents: changes + (era === 'modern' ? 1 : 0) })

const probes = (seen: Seen) => seen.got(seen.place.era === 'modern' ? 'server/discover' : 'ping').length

let names = 0

/** Adds a tool to the server and announces the change; returns the time of the announcement. */
function change({ server }: Stage): number {
  server.added = [`new-${++names}`]
  const at = performance.now()
  server.tellChange()
  return at
}

/** Repeats the announcement until somebody hears it, because the stream may not be open yet. */
async function changing(stage: Stage, isHeard: () => boolean): Promise<void> {
  let saidAt = -Infinity
  await until('the change is heard', () => {
    if (isHeard()) return true
    if (performance.now() - saidAt > AGAIN_MS) saidAt = change(stage)
    return false
  })
}

/** Opens the agent's stream, unless it is refused. */
async function listening(stage: Stage): Promise<Exchange> {
  const agent = await stage.agent()
  await agent.call('echo').over
  const stream = agent.listen()
  await until('the stream is open, or refused', () => stream.head !== '')
  return stream
}

/** Restarts the server's session and waits for its stream, which is the last in the list. */
async function listened(stage: Stage): Promise<void> {
  await stage.restart()
  await until('the server has an open stream', () => stage.server.streams.at(-1)?.isOpen === true)
  stage.marks.set('stream', stage.server.streams.length - 1)
}

const asked = (seen: Seen, since: number) => seen.got('tools/list').filter(({ at }) => at > since).length

/** Faults of standing streams, from servers to the gateway and from the gateway to agents. */
export const standingEntries: Entries = {
  'listen.refused': {
    async play(stage) {
      if (stage.place.side === 'client') return void (await listening(stage))
      stage.marks.set('state', await stage.restart())
      const isHit = async () => (await stage.journal('listen.refused')) !== undefined
      await until(
        'the server has a stream, or the fault has hit',
        async () => stage.server.streams.length > 0 || (await isHit()),
      )
    },
    saw(seen) {
      if (seen.place.side === 'client') {
        assert.equal(seen.exchange(1).status, 405, shown(seen.exchange(1)))
        return '405 in place of the stream'
      }
      assert.equal(seen.streams.length, 0)
      assert.equal(seen.marks.get('state'), 'up')
      return 'the server is not asked for the stream, and counts as up'
    },
  },
  'listen.cut': {
    fault: (place) => behind(1, place),
    async play(stage) {
      if (stage.place.side === 'client') {
        const stream = await listening(stage)
        await changing(stage, () => changesIn(stream) > 1 || stream.end !== 'open')
        return
      }
      await listened(stage)
      const before = probes(stage.seen)
      const { length } = stage.server.streams
      change(stage)
      // Pings continue, and the gateway reopens the stream between two pings.
      await until('the server is asked again for its stream, or the stream stays', () => {
        const { seen } = stage
        return seen.streams.length > length || probes(seen) - before > 3
      })
    },
    saw(seen) {
      if (seen.place.side === 'client') {
        const exchange = seen.exchange(1)
        assert.deepEqual([changesIn(exchange), exchange.end], [1, 'FIN'], shown(exchange))
        return 'FIN behind the first message, in the middle of what HTTP promised'
      }
      const [first, second] = seen.streams.slice(seen.marks.get('stream') as number)
      assert.ok(first && second, 'the gateway asked for the stream only once')
      assert.equal(first.isOpen, false)
      if (seen.place.era === 'legacy') assert.match(String(second.lastEventId), /^event-/)
      return `its end behind the first message; the gateway asks again${seen.place.era === 'legacy' ? ', with Last-Event-ID' : ''}`
    },
  },
  'listen.stall': {
    fault: (place) => ({ ...behind(0, place), stall: STALL_MS }),
    async play(stage) {
      if (stage.place.side === 'client') {
        const stream = await listening(stage)
        stage.marks.set('since', performance.now())
        await changing(stage, () => changesIn(stream) > 0)
        return
      }
      await listened(stage)
      const since = change(stage)
      stage.marks.set('since', since)
      await until('the lists are requested', () => asked(stage.seen, since) > 0)
    },
    saw(seen) {
      // In the modern era the fault begins as soon as the stream is open.
      const isModern = seen.place.era === 'modern'
      const changedAt = seen.marks.get('since') as number
      if (seen.place.side === 'client') {
        atLeast(STALL_MS, isModern ? seen.exchange(1).sentAt : changedAt, seen.exchange(1).lastAt)
        return `${STALL_MS} ms of silence; then what the server said meanwhile`
      }
      const from = isModern ? seen.streams[seen.marks.get('stream') as number]!.at : changedAt
      atLeast(STALL_MS, from, seen.got('tools/list').find(({ at }) => at > changedAt)?.at)
      return `the server says that its list has changed; after ${STALL_MS} ms of silence the gateway asks for it`
    },
  },
}
