import type { Player } from '../player.ts'
import type { Stage } from '../stage.ts'
import { LegacyPeer } from './peers.ts'
import { at } from './places.ts'

const ping = (id: unknown) => ({ jsonrpc: '2.0', id, method: 'ping' })
const call = (id: unknown, name: string, args: object = {}, meta?: object) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name, arguments: args, _meta: meta },
})
const initialized = { jsonrpc: '2.0', method: 'notifications/initialized' }

const batches: readonly (readonly [title: string, messages: readonly unknown[]])[] = [
  ['one ping', [ping(1)]],
  ['three pings', [ping(1), ping('2'), ping(3)]],
  ['no message', []],
  ['a notification', [initialized]],
  ['notifications and a ping', [initialized, ping(1), initialized]],
  ['two calls', [call(1, 'contract__echo', { a: 1 }), call(2, 'stdio__echo', { b: 2 })]],
  ['a call of a tool that is not there', [ping(1), call(2, 'none')]],
  ['a call that says something before', [call(1, 'contract__progress', { steps: 2 }, { progressToken: 1 })]],
  [
    'lists',
    [
      { jsonrpc: '2.0', id: 1, method: 'prompts/list' },
      { jsonrpc: '2.0', id: 2, method: 'resources/templates/list' },
    ],
  ],
  ['one message that is none', [ping(1), 7]],
  ['an initialize', [{ jsonrpc: '2.0', id: 1, method: 'initialize', params: {} }]],
  ['an answer to nothing', [{ jsonrpc: '2.0', id: 5, result: {} }]],
  ['the same id twice', [call(1, 'contract__echo', { a: 1 }), call(1, 'contract__echo', { a: 2 })]],
  ['a batch in a batch', [[ping(1)]]],
  ['too many', Array.from({ length: 101 }, (_, id) => ping(id))],
  ['as many as there may be', Array.from({ length: 100 }, (_, id) => ping(id))],
]

/** Plays batches, a feature of 2025-03-26 alone. */
export async function playBatches(player: Player, stage: Stage): Promise<void> {
  for (const version of ['2025-03-26', '2024-11-05', '2025-06-18', '2025-11-25']) {
    player.begin(`batches of ${version}`)
    const peer = await LegacyPeer.open(player, at(stage), { version })
    for (const [title, messages] of batches) await peer.post(title, JSON.stringify(messages))
    await peer.leave()
  }
}
