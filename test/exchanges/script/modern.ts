import type { Json } from '../../e2e/support/gateway.ts'
import type { Player } from '../player.ts'
import type { Stage } from '../stage.ts'
import type { WireReply } from '../wire.ts'
import { messageOf, ModernPeer } from './peers.ts'
import { at } from './places.ts'

const capable = { sampling: {}, elicitation: { form: {}, url: {} }, roots: {} }

const answers: Readonly<Record<string, Json>> = {
  'sampling/createMessage': { role: 'assistant', content: { type: 'text', text: 'Paris' }, model: 'm' },
  'elicitation/create': {
    action: 'accept',
    content: { name: 'Ada', color: 'blue', ok: true, context: 'c', username: 'u', email: 'e' },
  },
  'roots/list': { roots: [{ uri: 'file:///r', name: 'r' }] },
}

const tools = [
  'test_simple_text',
  'test_image_content',
  'test_audio_content',
  'test_embedded_resource',
  'test_multiple_content_types',
  'test_error_handling',
]

const asking = [
  'elicitation',
  'sampling',
  'list_roots',
  'request_state',
  'multiple_inputs',
  'multi_round',
  'capabilities',
]

/** Plays the modern era: the offers of each endpoint, calls in one round and in several, subscriptions. */
export async function playModern(player: Player, stage: Stage): Promise<void> {
  for (const server of [
    undefined,
    'legacy',
    'contract',
    'modern',
    'extras',
    'dual',
    'stdio',
    'sse',
    'raw',
    'brittle',
    'down',
  ]) {
    player.begin(`modern era at ${server ?? 'all'}`)
    const peer = new ModernPeer(player, at(stage, server))
    await peer.ask('discover', 'server/discover')
    for (const list of ['tools/list', 'prompts/list', 'resources/list', 'resources/templates/list'])
      await peer.ask(list, list)
    await peer.ask('no such cursor', 'tools/list', { cursor: 'nowhere' })
    await peer.ask('the first page as a cursor', 'tools/list', { cursor: '' })
    await peer.call('no_such_tool', {})
    await peer.ask('no such prompt', 'prompts/get', { name: 'none' })
    await peer.ask('no such resource', 'resources/read', { uri: 'test://none' })
    for (const gone of ['ping', 'initialize', 'logging/setLevel', 'resources/subscribe', 'no/such/method'])
      await peer.ask(gone, gone)
    await peer.post(
      'a notification',
      '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
      [['mcp-protocol-version', '2026-07-28']],
    )
  }
  for (const [server, prefix] of [
    ['modern', ''],
    [undefined, 'modern__'],
    ['legacy', ''],
    ['dual', ''],
  ] as const) {
    player.begin(`modern calls at ${prefix}${server ?? 'all'}`)
    const peer = new ModernPeer(player, at(stage, server), capable)
    for (const tool of tools) await peer.call(`${prefix}${tool}`, {})
    await peer.call(`${prefix}test_tool_with_progress`, {}, { _meta: { progressToken: 'p' } })
    await peer.call(`${prefix}test_tool_with_progress`, {})
    const logging = server === 'legacy' ? 'test_tool_with_logging' : 'test_logging_tool'
    await peer.call(`${prefix}${logging}`, {}, { _meta: { 'io.modelcontextprotocol/logLevel': 'info' } })
    await peer.call(`${prefix}${logging}`, {}, { _meta: { 'io.modelcontextprotocol/logLevel': 'error' } })
    await peer.call(`${prefix}test_header_parameters`, { region: 'eu', limit: 3 }, {}, [
      ['mcp-param-region', 'eu'],
      ['mcp-param-limit', '3'],
    ])
    await peer.call(`${prefix}test_header_parameters`, { region: 'eu' }, {}, [['mcp-param-region', 'us']])
    await peer.call(`${prefix}test_header_parameters`, { region: 'eu' })
    await peer.call(`${prefix}test_header_parameters`, {})
    for (const tool of asking) await inRounds(peer, `${prefix}test_input_required_result_${tool}`)
    await inRounds(peer, `${prefix}test_sampling`, { prompt: 'Who?' })
    await inRounds(peer, `${prefix}test_elicitation`, { message: 'Who?' })
    for (const prompt of ['test_simple_prompt', 'test_prompt_with_arguments', 'test_prompt_with_image'])
      await peer.ask(`prompt ${prompt}`, 'prompts/get', {
        name: `${prefix}${prompt}`,
        arguments: { arg1: 'a', arg2: 'b' },
      })
    const own = prefix === '' ? '' : 'breakwater://modern/'
    for (const uri of ['static-text', 'static-binary', 'template/7/data', 'none'])
      await peer.ask(`resource ${uri}`, 'resources/read', { uri: `${own}test://${uri}` })
    await peer.ask('complete', 'completion/complete', {
      ref: { type: 'ref/prompt', name: `${prefix}test_simple_prompt` },
      argument: { name: 'a', value: 'pa' },
    })
    const mute = new ModernPeer(player, at(stage, server))
    for (const tool of asking.slice(0, 3)) await mute.call(`${prefix}test_input_required_result_${tool}`, {})
    await mute.call(`${prefix}test_sampling`, { prompt: 'Who?' })
  }
  for (const [server, prefix] of [
    ['extras', ''],
    [undefined, 'extras__'],
  ] as const) {
    player.begin(`more modern calls at ${prefix}${server ?? 'all'}`)
    const peer = new ModernPeer(player, at(stage, server), capable)
    for (const tool of ['array', 'number', 'cancelled']) await peer.call(`${prefix}${tool}`, {})
    await peer.call(
      `${prefix}stream`,
      { steps: 3 },
      { _meta: { progressToken: 1, 'io.modelcontextprotocol/logLevel': 'debug' } },
    )
    await peer.call(`${prefix}stream`, {})
    for (const kinds of [['form'], ['url'], ['sampling'], ['roots'], ['form', 'url', 'sampling', 'roots']])
      await inRounds(peer, `${prefix}ask`, { kinds })
    await inRounds(peer, `${prefix}survey`)
    await inRounds(peer, `${prefix}busy`)
    for (const requestState of ['forged', 'breakwater.forged', 7])
      await peer.call(`${prefix}survey`, {}, { requestState, inputResponses: {} })
  }
  await playSubscriptions(player, stage)
}

/** Calls a tool, and repeats the call with the requested input until the call is complete. */
async function inRounds(peer: ModernPeer, name: string, args: Json = {}): Promise<void> {
  let more: Json = {}
  for (let round = 0; round < 6; round++) {
    const { result } = replyOf(await peer.call(name, args, more)) as { result?: Json }
    if (result?.resultType !== 'input_required') return
    const { inputRequests = {}, requestState } = result as {
      inputRequests?: Record<string, { method: string }>
      requestState?: string
    }
    const inputResponses = Object.fromEntries(
      Object.entries(inputRequests).map(([key, { method }]) => [key, answers[method]]),
    )
    more = { inputResponses, ...(requestState === undefined ? {} : { requestState }) }
  }
}

/** Returns the response in a reply: JSON, or the last event of a stream. */
function replyOf({ body, headers }: WireReply): Json {
  const isStream = headers.some(([, value]) => value.startsWith('text/event-stream'))
  return isStream
    ? messageOf(
        body
          .split('\n\n')
          .filter((event) => event.includes('data: {'))
          .at(-1),
      )
    : (JSON.parse(body) as Json)
}

async function playSubscriptions(player: Player, stage: Stage): Promise<void> {
  player.begin('subscriptions')
  const peer = new ModernPeer(player, at(stage, 'extras'))
  const notifications = { toolsListChanged: true, resourceSubscriptions: ['test://item/1'] }
  const listening = peer.open('listen', 'subscriptions/listen', { notifications })
  await listening.events(1)
  await peer.call('touch', { uri: 'test://item/1' })
  await listening.events(2)
  await peer.call('touch', { uri: 'test://item/2' })
  await peer.call('touch', { uri: 'test://item/1' })
  await listening.events(3)
  listening.drop()
  for (const filter of [{}, { toolsListChanged: false }, undefined, 7, { resourceSubscriptions: 'x' }])
    await peer.ask(`listen to ${String(JSON.stringify(filter))}`, 'subscriptions/listen', {
      notifications: filter,
    })
  const more = peer.open('listen to what nobody knows, too', 'subscriptions/listen', {
    notifications: { promptsListChanged: true, nothing: true },
  })
  await more.events(1)
  more.drop()
}
