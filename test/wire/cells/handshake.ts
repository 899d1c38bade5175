import assert from 'node:assert/strict'
import { until } from '../../support/until.ts'
import type { Json } from '../../e2e/support/gateway.ts'
import { DISCOVERY_MS, type Place, type Seen, type Stage } from '../support/stage.ts'
import type { Exchange } from '../support/wire-agent.ts'
import { answered, atLeast, shown, type Entries } from './entry.ts'

/** How long a fault holds a reply back from an agent, in milliseconds. */
const HOLD_MS = 1_000

/** Returns the first method of an upstream session in the place's era. */
const handshakeOf = ({ era }: { readonly era: string }) =>
  era === 'modern' ? 'server/discover' : 'initialize'

/** Returns the gateway's health probe in the place's era. */
const probeOf = ({ era }: { readonly era: string }) => (era === 'modern' ? 'server/discover' : 'ping')

async function anew(stage: Stage): Promise<void> {
  stage.marks.set('since', performance.now())
  stage.marks.set('state', await stage.restart())
  stage.marks.set('until', performance.now())
}

/** Plays an agent's handshake, or a request for the offers in the era without handshakes. */
async function greeting(stage: Stage): Promise<void> {
  const agent = await stage.agent()
  if (agent.welcome === undefined) await agent.send('server/discover').over
}

/** Plays a handshake: of an agent with the gateway, or of the gateway with a server. */
const shaking = (stage: Stage) => (stage.place.side === 'client' ? greeting : anew)(stage)

/** Returns the reply to an agent's handshake. */
const greeted = (seen: Seen): Exchange => seen.welcomes[0] ?? seen.exchange()

/** Holds until the gateway gives up; towards agents, only delays. */
const holding = ({ side }: Place): Json => (side === 'client' ? { hold: HOLD_MS } : {})

async function pinging(stage: Stage): Promise<void> {
  const agent = await stage.agent()
  await agent.send('ping').over
}

/** Checks that an agent got a delayed answer. */
function late(exchange: Exchange): string {
  answered(exchange)
  atLeast(HOLD_MS, exchange.sentAt, exchange.firstAt)
  return `the answer after ${HOLD_MS} ms`
}

const noPing = { 'agent, modern': 'the modern era has no ping' }

const state = (seen: Seen) => seen.marks.get('state')

/** Returns the messages after the last handshake; messages of earlier sessions come before. */
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
    // The gateway may probe the server with a method of the other era.
    behind(seen).filter(
      ({ message: { method } }) => method !== undefined && method !== 'ping' && method !== own,
    ),
    [],
  )
  assert.equal(state(seen), 'down')
}

/** Faults at the beginning of sessions with servers, and during them. */
export const handshakeEntries: Entries = {
  'initialize.refused': {
    async play(stage) {
      await shaking(stage)
      if (stage.place.side === 'client') return
      // A probe under way at the start of the fault still arrives; a server that is down gets no probes.
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
      await until('the server is down, or gets repeated probes', async () => {
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
        // A ping sent before the fault was armed may arrive later.
        stage.server.clear()
        await until('the next probe is hit', async () => (await hit()) !== first)
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
