import type { Player } from '../player.ts'
import type { Stage } from '../stage.ts'
import { LegacyPeer, ModernPeer } from './peers.ts'
import { at, bearer } from './places.ts'

/** Calls per tool of the server with faults: enough for each fault to hit some calls and spare others. */
const CALLS = 24

/** Plays calls the gateway ends, refuses or repairs. */
export async function playFailures(player: Player, stage: Stage): Promise<void> {
  const control = new URL(stage.open.control).host
  player.begin('faults')
  const arm = { by: 'the script', why: 'to record' }
  await player.send('arm', control, {
    method: 'POST',
    path: '/admin/chaos/arm',
    headers: [['content-type', 'application/json'], bearer(stage.open.token)],
    body: JSON.stringify(arm),
  })
  const shaken = await LegacyPeer.open(player, at(stage, 'shaky'))
  const shakenAmong = await LegacyPeer.open(player, at(stage))
  const modern = new ModernPeer(player, at(stage, 'shaky'))
  for (let n = 0; n < CALLS; n++) {
    for (const tool of ['read', 'typed', 'write']) await shaken.call(tool, { n })
    await shakenAmong.call('shaky__read', { n, all: true })
    await modern.call('read', { n, modern: true })
  }
  await player.send('what was done', control, { method: 'GET', path: '/admin/chaos', headers: [] })
  await player.send('every decision', control, {
    method: 'GET',
    path: '/admin/chaos/journal?limit=100',
    headers: [],
  })
  await player.send('disarm', control, {
    method: 'POST',
    path: '/admin/chaos/disarm',
    headers: [['content-type', 'application/json']],
    body: JSON.stringify(arm),
  })
  for (const tool of ['read', 'typed', 'write']) await shaken.call(tool, { n: 0 })

  player.begin('a breaker opens')
  const brittle = await LegacyPeer.open(player, at(stage, 'brittle'))
  const brittleAmong = await LegacyPeer.open(player, at(stage))
  for (let n = 0; n < 6; n++) await brittle.call('write', { text: String(n) })
  await brittleAmong.call('brittle__write', {})
  await new ModernPeer(player, at(stage, 'brittle')).call('write', {})
  for (let n = 0; n < 5; n++) await brittle.call('read', { n })
  for (let n = 0; n < 5; n++) await brittle.call('typed', { n })
  await brittle.ask('a list all the same', 'tools/list')
  await player.send('breakers', control, { method: 'GET', path: '/admin/breakers', headers: [] })
  for (const action of ['open', 'close', 'reset', 'break', undefined])
    await player.send(`${String(action)} a breaker`, control, {
      method: 'POST',
      path: '/admin/breakers/brittle/write',
      headers: [['content-type', 'application/json'], bearer(stage.open.token)],
      body: JSON.stringify({ action }),
    })
  await brittle.call('write', {})

  player.begin('deadlines')
  const contract = await LegacyPeer.open(player, at(stage, 'contract'))
  const stdio = await LegacyPeer.open(player, at(stage, 'stdio'))
  await contract.call('echo', {})
  await stdio.call('echo', {})
  await contract.call('wait', {})
  await stdio.call('wait', {})
  await contract.call('wait', {}, { 'dev.breakwater/deadline-ms': 700 })
  await stdio.call('wait', {}, undefined, [['x-breakwater-deadline-ms', '300']])
  await stdio.call('wait', {}, undefined, [['grpc-timeout', '300m']])
  await contract.call('echo', {}, { 'dev.breakwater/deadline-ms': -1 })
  await contract.call('echo', {}, undefined, [['x-breakwater-deadline-ms', 'soon']])
  await new ModernPeer(player, at(stage, 'extras')).call('wait', {}, {}, [
    ['x-breakwater-deadline-ms', '400'],
  ])

  player.begin('cancelled calls')
  for (const [peer, title] of [
    [contract, 'HTTP'],
    [stdio, 'stdio'],
  ] as const) {
    const text = peer.request('tools/call', { name: 'wait', arguments: {} })
    const { id } = JSON.parse(text) as { id: number }
    const call = peer.open(`call over ${title}`, text, [['x-breakwater-deadline-ms', '20000']])
    // Over HTTP the server begins its stream at once, and the gateway does the same.
    if (title === 'HTTP') await call.begun()
    else await stage.open.waitForCalls(1)
    await peer.post('the same id', text)
    await peer.notify('notifications/cancelled', { requestId: id, reason: 'changed my mind' })
    await call.end()
    await peer.notify('notifications/cancelled', { requestId: 'none' })
  }

  player.begin('a full bulkhead')
  const sse = await LegacyPeer.open(player, at(stage, 'sse'))
  const waiting = sse.request('tools/call', { name: 'wait', arguments: {} })
  const held = sse.open('the only call that there may be', waiting)
  await stage.open.waitForCalls(1)
  await sse.call('wait', {})
  await sse.notify('notifications/cancelled', { requestId: (JSON.parse(waiting) as { id: number }).id })
  await held.end()
  await sse.leave()

  player.begin('rate limit')
  for (let n = 0; n < 6; n++) await stdio.call('cancelled', {})

  player.begin('idempotency keys')
  const key = (name: unknown) => ({ 'dev.breakwater/idempotency-key': name })
  for (let n = 0; n < 2; n++) await shaken.call('write', { text: 'once' }, key('k-1'))
  await shaken.call('write', { text: 'other' }, key('k-1'))
  for (const name of ['', 7, 'x'.repeat(257)]) await shaken.call('write', { text: 'x' }, key(name))
  await shaken.call('write', { text: 'once' })

  player.begin('a server that is down')
  const among = await LegacyPeer.open(player, at(stage))
  await among.call('down__anything', {})
  await among.call('off__anything', {})
  await among.ask('prompt', 'prompts/get', { name: 'down__anything' })
  await among.ask('resource', 'resources/read', { uri: 'breakwater://down/x' })
  await new ModernPeer(player, at(stage)).call('down__anything', {})
  await new ModernPeer(player, at(stage, 'down')).call('anything', {})

  player.begin('policy sets and tenants')
  for (const set of ['cautious', 'none', ''])
    await among.call('contract__echo', { set }, undefined, [['x-breakwater-set', set]])
  for (const tenant of ['a', 'b'.repeat(100), ''])
    await among.call('contract__echo', { tenant }, undefined, [['x-breakwater-tenant', tenant]])
  for (const peer of [shaken, shakenAmong, brittle, brittleAmong, contract, stdio, among]) await peer.leave()
}
