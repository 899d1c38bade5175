import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { withInjected } from '../../src/mesh/injected.ts'
import { initializeResult } from '../support/scripted-upstream.ts'
import { allLists, discovered, oneTool, PROBE_MS, REFRESH_MS } from './discovered.ts'

test('the first round fetches every list that the server offers', async () => {
  const { start, asked, told, catalogs, clock } = discovered()
  await start()
  assert.deepEqual(asked(), allLists)
  assert.deepEqual(told, ['up'])
  assert.deepEqual(
    catalogs[0]?.lists.tools.map(({ key }) => key),
    ['a'],
  )
  assert.equal(catalogs[0]?.fetchedAt, clock.wall())
})

test('a list that the server does not offer is empty, and nobody asks for it', async () => {
  const { start, asked, upstream, catalogs } = discovered()
  upstream.initializeResult = initializeResult({ tools: {} })
  await start()
  assert.deepEqual(asked(), ['tools/list'])
  assert.deepEqual(catalogs[0]?.lists.prompts, [])
})

test('a list that the server turns out not to know is empty', async () => {
  const { start, told, catalogs } = discovered((method, params, upstreamSession) =>
    method === 'resources/templates/list'
      ? { error: { code: -32601, message: 'x' } }
      : oneTool(method, params, upstreamSession),
  )
  await start()
  assert.deepEqual(told, ['up'])
  assert.equal(catalogs[0]?.lists.tools.length, 1)
})

test('a list that fails takes neither the server down nor its last-known entries away', async () => {
  let broken = false
  const { start, clock, told, catalogs } = discovered((method, params, upstreamSession) => {
    if (method !== 'prompts/list') return oneTool(method, params, upstreamSession)
    return broken ? { error: { code: -32603, message: 'x' } } : { result: { prompts: [{ name: 'p' }] } }
  })
  await start()
  broken = true
  await clock.advance(REFRESH_MS + PROBE_MS)
  assert.ok(told.every((what) => what === 'up'))
  assert.deepEqual(
    catalogs.at(-1)?.lists.prompts.map(({ key }) => key),
    ['p'],
  )
  assert.equal(catalogs.at(-1)?.cut?.prompts, 'prompts/list failed: x')
})

test('tools that cannot be listed are an outage', async () => {
  const { start, told } = discovered((method, params, upstreamSession) =>
    method === 'tools/list'
      ? { error: { code: -32603, message: 'x' } }
      : oneTool(method, params, upstreamSession),
  )
  await start()
  assert.deepEqual(told, ['bad_reply'])
})

test('a server that is up is pinged now and then, and its lists are fetched again more rarely', async () => {
  const { start, asked, clock, told } = discovered()
  await start()
  asked()
  await clock.advance(PROBE_MS)
  assert.deepEqual(asked(), ['ping'])
  await clock.advance(REFRESH_MS - PROBE_MS)
  assert.deepEqual(
    asked().filter((method) => method !== 'ping'),
    allLists,
  )
  assert.ok(told.every((word) => word === 'up'))
})

/** This handshake offers no capabilities, because of faults with these names. */
function incapable(names: readonly string[], more = {}) {
  const initialized = initializeResult({}, more)
  const value = { result: initialized.value }
  withInjected({ kind: 'answered', verdict: 'correct', result: { text: '', value, status: 200 } }, names)
  return initialized
}

test('a session whose handshake faults have changed is left when they end, for one of a new handshake', async () => {
  const { start, discovery, clock, upstream, asked, catalogs } = discovered()
  upstream.initializeResult = incapable(['f'])
  await start()
  assert.deepEqual(asked(), [])
  upstream.initializeResult = initializeResult()
  discovery.refresh()
  await clock.advance(0)
  assert.deepEqual([upstream.attempts, catalogs.at(-1)?.lists.tools.length], [1, 0])
  discovery.refresh({ greetsAnew: true })
  await clock.advance(0)
  assert.deepEqual([upstream.attempts, catalogs.at(-1)?.lists.tools.length], [2, 1])
  assert.deepEqual(asked(), allLists)
  assert.deepEqual(
    upstream.upstreamSessions.map(({ closes }) => closes),
    [1, 0],
  )
})

test('a session with an unchanged handshake survives the end of other handshakes’ faults', async () => {
  const { start, discovery, clock, upstream, asked } = discovered()
  await start()
  asked()
  discovery.refresh({ greetsAnew: true })
  await clock.advance(0)
  assert.deepEqual([asked(), upstream.attempts], [allLists, 1])
})

test('a modern server is asked for its identity before its session is left, with or without an answer', async () => {
  for (const answers of [true, false]) {
    const { start, discovery, clock, upstream, asked, told, catalogs } = discovered((method, ...more) =>
      method === 'ping' && !answers ? gatewayError('attempt_timeout', 'late') : oneTool(method, ...more),
    )
    upstream.initializeResult = incapable([], { protocolVersion: '2026-07-28' })
    await start()
    upstream.initializeResult = initializeResult(undefined, { protocolVersion: '2026-07-28' })
    discovery.refresh({ greetsAnew: true })
    await clock.advance(0)
    assert.deepEqual(upstream.upstreamSessions[0]?.asked, ['ping'])
    assert.deepEqual(asked(), ['ping', ...allLists].sort())
    assert.deepEqual([told, catalogs.at(-1)?.lists.tools.length], [['up', 'up'], 1])
  }
})

test('a server that is down when faults end gets a new handshake once up', async () => {
  const { start, discovery, clock, upstream } = discovered()
  upstream.refusal = gatewayError('upstream_unavailable', 'nobody there')
  await start()
  discovery.refresh({ greetsAnew: true })
  await clock.advance(0)
  upstream.refusal = undefined
  upstream.initializeResult = incapable(['f'])
  const begun = upstream.attempts
  await clock.advance(5_000)
  assert.equal(upstream.attempts, begun + 2)
})

test('a ping that is answered with an error is an answer', async () => {
  for (const code of [-32601, -32603]) {
    const { start, clock, told, upstream } = discovered((method, params, upstreamSession) =>
      method === 'ping' ? { error: { code, message: 'no' } } : oneTool(method, params, upstreamSession),
    )
    await start()
    await clock.advance(PROBE_MS * 3)
    assert.deepEqual(told, ['up', 'up', 'up', 'up'])
    assert.equal(upstream.attempts, 1)
  }
})

test('a server that refuses pings as no JSON-RPC is judged by a list', async () => {
  for (const reason of ['upstream_refused', 'upstream_status', 'bad_reply'] as const) {
    let listsWork = true
    const { start, asked, clock, told, upstream } = discovered((method, params, upstreamSession) => {
      if (method === 'ping' || !listsWork) return gatewayError(reason, 'what?', { sent: true })
      return oneTool(method, params, upstreamSession)
    })
    await start()
    asked()
    await clock.advance(PROBE_MS)
    assert.deepEqual(asked(), ['ping', 'tools/list'])
    await clock.advance(PROBE_MS)
    assert.deepEqual([told, upstream.attempts], [['up', 'up', 'up'], 1])
    listsWork = false
    await clock.advance(PROBE_MS)
    assert.equal(told.at(-1), reason)
  }
})

test('a server that leaves pings without an answer, and answers else, is not pinged for ever', async () => {
  const { start, asked, clock, told } = discovered((method, params, upstreamSession) =>
    method === 'ping' ? new Promise(() => {}) : oneTool(method, params, upstreamSession),
  )
  await start()
  await clock.advance(10 * PROBE_MS)
  const isDown = (word: string) => word === 'attempt_timeout'
  assert.equal(told.filter(isDown).length, 2)
  told.length = 0
  asked()
  await clock.advance(5 * PROBE_MS)
  assert.deepEqual(new Set(asked()), new Set(['tools/list']))
  assert.deepEqual(new Set(told), new Set(['up']))
})

test('a server with tools is up, with any reply about its missing lists', async () => {
  for (const reason of ['upstream_refused', 'upstream_status', 'bad_reply'] as const) {
    const { start, told, catalogs } = discovered((method, params, upstreamSession) =>
      method === 'prompts/list'
        ? gatewayError(reason, 'HTTP 500', { sent: true })
        : oneTool(method, params, upstreamSession),
    )
    await start()
    assert.deepEqual(told, ['up'])
    assert.equal(catalogs[0]?.lists.tools.length, 1)
  }
})

test('a list that changed is fetched again, and only that one', async () => {
  const { start, asked, clock, upstream } = discovered()
  await start()
  asked()
  upstream.upstreamSession.say({ method: 'notifications/resources/list_changed' })
  await clock.advance(250)
  assert.deepEqual(asked(), ['resources/list', 'resources/templates/list'])
})

test('a storm of changes makes one round', async () => {
  const { start, asked, clock, upstream } = discovered()
  await start()
  asked()
  for (let n = 0; n < 100; n++) {
    upstream.upstreamSession.say({ method: 'notifications/tools/list_changed' })
    upstream.upstreamSession.say({ method: 'notifications/prompts/list_changed' })
    await clock.advance(1)
  }
  await clock.advance(250)
  assert.deepEqual(asked(), ['prompts/list', 'tools/list'])
})

test('a storm that never ends does not put the round off for ever', async () => {
  const { start, asked, clock, upstream } = discovered()
  await start()
  asked()
  for (let n = 0; n < 20; n++) {
    upstream.upstreamSession.say({ method: 'notifications/tools/list_changed' })
    await clock.advance(100)
  }
  const rounds = asked().length
  assert.ok(rounds >= 5 && rounds <= 8, `${rounds} rounds in 2 s`)
})

test('lists that change without end are fetched ever more rarely, and as soon as before after a quiet time', async () => {
  const { start, asked, clock, upstream } = discovered()
  await start()
  const changed = { method: 'notifications/tools/list_changed' }
  const roundsIn = async (seconds: number) => {
    asked()
    for (let n = 0; n < seconds * 10; n++) {
      upstream.upstreamSession.say(changed)
      await clock.advance(100)
    }
    return asked().filter((method) => method === 'tools/list').length
  }
  const first = await roundsIn(10)
  assert.ok(first >= 10 && first <= 18, `${first} rounds in the first 10 s`)
  const later = await roundsIn(60)
  assert.ok(later >= 10 && later <= 20, `${later} rounds in a minute`)
  await clock.advance(60_000)
  asked()
  upstream.upstreamSession.say(changed)
  await clock.advance(250)
  assert.deepEqual(asked(), ['tools/list'])
})

test('a change reported during a round is not lost', async () => {
  let release = () => {}
  const { start, asked, clock, upstream } = discovered(async (method, params, upstreamSession) => {
    if (method === 'tools/list' && upstreamSession.asked.filter((asked) => asked === method).length === 1) {
      await new Promise<void>((resolve) => (release = resolve))
    }
    return oneTool(method, params, upstreamSession)
  })
  await start()
  upstream.upstreamSession.say({ method: 'notifications/tools/list_changed' })
  release()
  await clock.advance(0)
  await clock.advance(250)
  assert.deepEqual(asked(), [...allLists, 'tools/list'].sort())
})

test('other notifications cause no round', async () => {
  const { start, asked, clock, upstream } = discovered()
  await start()
  asked()
  upstream.upstreamSession.say({ method: 'notifications/message', params: { level: 'info', data: 'x' } })
  upstream.upstreamSession.say({ method: 'notifications/resources/updated', params: { uri: 'a' } })
  await clock.advance(PROBE_MS - 1)
  assert.deepEqual(asked(), [])
})

test('questions of the server are answered, because the server may wait for the answer', async () => {
  const { start, clock, upstream } = discovered()
  await start()
  const answers: string[] = []
  const answer = (text: string) => Promise.resolve(void answers.push(text))
  for (const [id, method] of ['ping', 'roots/list', 'sampling/createMessage'].entries()) {
    upstream.upstreamSession.say({ id, method }, answer)
  }
  await clock.advance(0)
  const [ping, roots, sampling] = answers.map((text) => JSON.parse(text) as Record<string, unknown>)
  assert.deepEqual(ping?.result, {})
  assert.deepEqual(roots?.result, { roots: [] })
  assert.equal((sampling?.error as { code: number }).code, -32601)
})
