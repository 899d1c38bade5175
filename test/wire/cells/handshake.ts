import assert from 'node:assert/strict'
import { until } from '../../support/until.ts'
import type { Json } from '../../e2e/support/gateway.ts'
import { DISCOVERY_MS, type Place, type Seen, type Stage } from '../support/stage.ts'
import type { Exchange } from '../support/wire-agent.ts'
import { answered, atLeast, shown, type Entries } from './entry.ts'

/** How long an agent waits for what is held back from it. */
const HOLD_MS = 1_000

/** How the gateway begins an upstream session in the era of the place. */
const handshakeOf = ({ era }: { readonly era: string }) =>
  era === 'modern' ? 'server/discover' : 'initialize'

/** How it asks whether a server is there. */
const probeOf = ({ era }: { readonly era: string }) => (era === 'modern' ? 'server/discover' : 'ping')

async function anew(stage: Stage): Promise<void> {
  stage.marks.set('since', performance.now())
  stage.marks.set('state', await stage.restart())
  stage.marks.set('until', performance.now())
}

/** An agent shakes hands, or asks what there is where its era has no handshake. */
async function greeting(stage: Stage): Promise<void> {
  const agent = await stage.agent()
  if (agent.welcome === undefined) await agent.send('server/discover').over
}

/** A handshake: of an agent with the gateway, or of the gateway with a server. */
const shaking = (stage: Stage) => (stage.place.side === 'client' ? greeting : anew)(stage)

/** What an agent got in return for its handshake. */
const greeted = (seen: Seen): Exchange => seen.welcomes[0] ?? seen.exchange()

/** Holds back until the gateway gives up, or an agent is only late. */
const holding = ({ side }: Place): Json => (side === 'client' ? { hold: HOLD_MS } : {})

/** An agent pings. */
async function pinging(stage: Stage): Promise<void> {
  const agent = await stage.agent()
  await agent.send('ping').over
}

/** An agent got an answer, and no sooner than it was held back. */
function late(exchange: Exchange): string {
  answered(exchange)
  atLeast(HOLD_MS, exchange.sentAt, exchange.firstAt)
  return `the answer after ${HOLD_MS} ms`
}

const noPing = { 'agent, modern': 'the modern era has no ping' }

const state = (seen: Seen) => seen.marks.get('state')

/** What came behind the last handshake: what the session before still says comes earlier. */
function behind(seen: Seen) {
  const method = handshakeOf(seen.place)
  const at = seen.received.findLastIndex(({ message }) => message.method === method)
  assert.notEqual(at, -1, 'no handshake')
  return seen.received.slice(at + 1)
}

function nothingBehind(seen: Seen): void {
  const own = handshakeOf(seen.place)
  assert.ok(seen.gave(own).length > 0, `no ${own} was answered`)
  assert.deepEqual(
    // It may be asked in the words of the other era whether it is there.
    behind(seen).filter(
      ({ message: { method } }) => method !== undefined && method !== 'ping' && method !== own,
    ),
    [],
  )
  assert.equal(state(seen), 'down')
}

/** How sessions with servers begin, and whether they go on. */
export const handshakeEntries: Entries = {
  'initialize.refused': {
    async play(stage) {
      await shaking(stage)
      if (stage.place.side === 'client') return
      // A probe that was under way when the fault came still arrives; from a server that is down none is.
      stage.server.clear()
      await anew(stage)
    },
    saw(seen) {
      if (seen.place.side === 'client') {
        const exchange = greeted(seen)
        const { error } = exchange
        assert.deepEqual(error, { code: -32603, message: 'Server is starting' }, shown(exchange))
        assert.equal(exchange.header('mcp-session-id'), undefined)
        return 'the error -32603, and no session'
      }
      assert.equal(seen.got(handshakeOf(seen.place)).length, 0)
      assert.equal(state(seen), 'down')
      return `no ${handshakeOf(seen.place)} at the server, which counts as down`
    },
  },
  'initialize.hang': {
    fault: holding,
    play: shaking,
    saw(seen) {
      if (seen.place.side === 'client') return late(greeted(seen))
      nothingBehind(seen)
      atLeast(DISCOVERY_MS, seen.marks.get('since') as number, seen.marks.get('until') as number)
      return `the server answers ${handshakeOf(seen.place)}; for ${DISCOVERY_MS} ms nothing follows, and it counts as down`
    },
  },
  'initialize.version': {
    play: shaking,
    saw(seen) {
      if (seen.place.side === 'client') {
        const { protocolVersion, supportedVersions } = answered(greeted(seen))
        assert.deepEqual([protocolVersion ?? supportedVersions].flat(), ['1999-01-01'])
        return 'the version 1999-01-01, and no other'
      }
      nothingBehind(seen)
      return `the server answers ${handshakeOf(seen.place)}; nothing follows, and it counts as down`
    },
  },
  'initialize.no_capabilities': {
    play: shaking,
    saw(seen) {
      if (seen.place.side === 'client') {
        assert.deepEqual(answered(greeted(seen)).capabilities, {})
        return 'no capabilities'
      }
      assert.ok(seen.gave(handshakeOf(seen.place))[0]?.text.includes('"tools"'))
      assert.ok(behind(seen).every(({ message }) => message.method !== 'tools/list'))
      assert.equal(state(seen), 'up')
      return 'the server says that it has tools; nobody asks for the list'
    },
  },
  'ping.unanswered': {
    fault: holding,
    unknown: noPing,
    async play(stage) {
      if (stage.place.side === 'client') return pinging(stage)
      const probes = () => stage.seen.got(probeOf(stage.place)).length
      await until('it is down, or is asked again and again', async () => {
        stage.marks.set('state', await stage.state())
        return stage.marks.get('state') === 'down' || probes() > 2
      })
    },
    saw(seen) {
      if (seen.place.side === 'client') return late(seen.exchange())
      assert.equal(state(seen), 'down')
      const probe = probeOf(seen.place)
      assert.ok(seen.gave(probe).length > 0, `no ${probe} was answered`)
      return `the server answers ${probe}, and counts as down`
    },
  },
  'ping.error': {
    fault: { code: -32099, message: 'no' },
    unknown: noPing,
    async play(stage) {
      if (stage.place.side === 'client') return pinging(stage)
      const hit = async () => JSON.stringify(await stage.journal('ping.error'))
      let first: string | undefined
      await until('a ping came, or was hit', async () => {
        first = await hit()
        return first !== undefined || stage.seen.got(probeOf(stage.place)).length > 0
      })
      if (first !== undefined) {
        // A ping sent before the fault was armed may arrive after it.
        stage.server.clear()
        await until('the next one is hit', async () => (await hit()) !== first)
      }
      stage.marks.set('state', await stage.state())
    },
    saw(seen) {
      if (seen.place.side === 'client') {
        assert.deepEqual(seen.exchange().error, { code: -32099, message: 'no' })
        return 'the error -32099'
      }
      const probe = probeOf(seen.place)
      assert.equal(seen.got(probe).length, 0)
      assert.equal(state(seen), 'up')
      return `no ${probe} at the server, which counts as up`
    },
  },
}
