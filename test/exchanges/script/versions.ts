import type { Player } from '../player.ts'
import type { Stage } from '../stage.ts'
import { LegacyPeer } from './peers.ts'
import { at } from './places.ts'

const versions = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'] as const

/** Every endpoint, with an existing tool, prompt and resource. */
const endpoints = [
  {
    server: undefined,
    tool: 'legacy__test_simple_text',
    prompt: 'legacy__test_simple_prompt',
    uri: 'breakwater://legacy/test://static-text',
  },
  { server: 'legacy', tool: 'test_simple_text', prompt: 'test_simple_prompt', uri: 'test://static-text' },
  { server: 'contract', tool: 'echo', prompt: 'none', uri: 'test://none' },
  { server: 'modern', tool: 'test_simple_text', prompt: 'test_simple_prompt', uri: 'test://static-text' },
  { server: 'extras', tool: 'number', prompt: 'none', uri: 'test://item/1' },
  { server: 'dual', tool: 'test_simple_text', prompt: 'test_simple_prompt', uri: 'test://static-text' },
  { server: 'stdio', tool: 'echo', prompt: 'none', uri: 'test://none' },
  { server: 'sse', tool: 'echo', prompt: 'none', uri: 'test://none' },
  { server: 'brittle', tool: 'none', prompt: 'none', uri: 'test://none' },
] as const

/** Plays a whole session of every legacy version on every endpoint. */
export async function playVersions(player: Player, stage: Stage): Promise<void> {
  for (const { server, tool, prompt, uri } of endpoints) {
    for (const version of versions) {
      player.begin(`${version} at ${server ?? 'all'}`)
      const peer = await LegacyPeer.open(player, at(stage, server), { version })
      await peer.notify('notifications/initialized')
      await peer.ask('ping', 'ping')
      await peer.ask('tools', 'tools/list')
      await peer.ask('prompts', 'prompts/list', {})
      await peer.ask('resources', 'resources/list', {})
      await peer.ask('templates', 'resources/templates/list', {})
      await peer.ask('no such cursor', 'tools/list', { cursor: 'nowhere' })
      await peer.call(tool, { a: 1, b: 'x' })
      await peer.call('no_such_tool')
      await peer.ask('prompt', 'prompts/get', { name: prompt })
      await peer.ask('resource', 'resources/read', { uri })
      await peer.ask('complete', 'completion/complete', {
        ref: { type: 'ref/prompt', name: prompt },
        argument: { name: 'city', value: 'par' },
      })
      await peer.ask('log level', 'logging/setLevel', { level: 'warning' })
      await peer.ask('no such method', 'no/such/method')
      await peer.leave()
      await peer.ask('ping after the end', 'ping')
    }
  }
  player.begin('initialize')
  for (const version of ['2024-10-07', '2099-01-01', '1', '2026-07-28', '']) {
    const peer = await LegacyPeer.open(player, at(stage), { version })
    await peer.leave()
  }
  for (const server of ['raw', 'shaky', 'down', 'off', 'nowhere', '__proto__', 'legacy/more'])
    await LegacyPeer.open(player, at(stage, server))
}
