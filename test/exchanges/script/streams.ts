import type { Player } from '../player.ts'
import type { Stage } from '../stage.ts'
import { LegacyPeer } from './peers.ts'
import { at } from './places.ts'

/** Plays the event streams of sessions and calls: lost streams, and the replies to returning clients. */
export async function playStreams(player: Player, stage: Stage): Promise<void> {
  for (const version of ['2025-11-25', '2025-06-18', '2025-03-26'] as const) {
    // Before 2025-11-25 a stream begins with its first message.
    const primed = version === '2025-11-25' ? 1 : 0
    for (const [server, prefix] of [
      ['contract', ''],
      ['sse', ''],
      ['stdio', ''],
    ] as const) {
      player.begin(`streams of ${version} at ${server}`)
      const peer = await LegacyPeer.open(player, at(stage, server), { version })
      const uri = `test://${server}/${version}`
      await peer.ask('subscribe', 'resources/subscribe', { uri })
      const stream = peer.listen('listen')
      if (primed === 1) await stream.events(1)
      else await stream.begun()
      await peer.call(`${prefix}touch`, { uri })
      await stream.events(primed + 1)
      await peer.call(`${prefix}touch`, { uri })
      await stream.events(primed + 2)
      stream.drop()
      for (const id of ['0-0', '0-1', '0-2']) {
        const again = peer.listen(`resume after ${id}`, id)
        const missed = { '0-0': 2, '0-1': 1, '0-2': 0 }[id] ?? 0
        if (missed === 0) await again.begun()
        else await again.events(missed)
        again.drop()
      }
      for (const id of ['9-0', 'x', '', '0', '0-', '-1-0', '0-99999999999999999999'])
        await peer.listen(`resume after ${id}`, id).end()
      await peer.call(`${prefix}progress`, { steps: 3 }, { progressToken: 'p' })
      for (const id of ['1-0', '1-1', '1-2', '1-3', '1-4'])
        await peer.listen(`what a call said after ${id}`, id).end()
      await peer.leave()
      await peer.listen('listen after the end').end()
      await peer.leave('leave once more')
    }
  }
  player.begin('a second listener')
  const peer = await LegacyPeer.open(player, at(stage))
  const first = peer.listen('listen')
  await first.events(1)
  const second = peer.listen('listen once more')
  await second.events(1)
  await first.end()
  await peer.leave()
  await second.end()
  player.begin('a stream that its server ends early')
  const early = await LegacyPeer.open(player, at(stage, 'legacy'))
  await early.post('call', early.request('tools/call', { name: 'test_reconnection', arguments: {} }))
  await early.leave()
}
