import type { Player } from '../player.ts'
import type { Stage } from '../stage.ts'
import { LegacyPeer, messageOf } from './peers.ts'
import { at } from './places.ts'

const capable = { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } }

const answers: Readonly<Record<string, readonly Record<string, unknown>[]>> = {
  'sampling/createMessage': [
    { role: 'assistant', content: { type: 'text', text: 'Paris' }, model: 'm', stopReason: 'endTurn' },
  ],
  'elicitation/create': [
    { action: 'accept', content: { username: 'u', email: 'u@example.com' } },
    { action: 'decline' },
    { action: 'cancel' },
  ],
}

/** Plays legacy tools: results of every kind, and the messages before them. */
export async function playTools(player: Player, stage: Stage): Promise<void> {
  for (const [server, prefix] of [
    ['legacy', ''],
    [undefined, 'legacy__'],
    ['dual', ''],
  ] as const) {
    player.begin(`tools of ${server ?? 'all'}`)
    const peer = await LegacyPeer.open(player, at(stage, server), { capabilities: capable })
    for (const tool of [
      'simple_text',
      'image_content',
      'audio_content',
      'embedded_resource',
      'multiple_content_types',
      'error_handling',
    ])
      await peer.call(`${prefix}test_${tool}`)
    for (const token of ['p', 7])
      await peer.call(`${prefix}test_tool_with_progress`, {}, { progressToken: token })
    await peer.call(`${prefix}test_tool_with_logging`, {})
    await peer.ask('log level', 'logging/setLevel', { level: 'error' })
    await peer.call(`${prefix}test_tool_with_logging`, {})
    await peer.call(`${prefix}json_schema_2020_12_tool`, { name: 'n', address: { street: 's', city: 'c' } })
    await peer.call(`${prefix}json_schema_2020_12_tool`, { name: 7, address: { street: [] }, more: 1 })
    await peer.call(`${prefix}json_schema_2020_12_tool`)
    await asked(peer, `${prefix}test_sampling`, { prompt: 'What is the capital of France?' })
    await asked(peer, `${prefix}test_elicitation`, { message: 'Who are you?' })
    await asked(peer, `${prefix}test_elicitation_sep1034_defaults`, {})
    await asked(peer, `${prefix}test_elicitation_sep1330_enums`, {})
    const plain = await LegacyPeer.open(player, at(stage, server))
    await plain.call(`${prefix}test_sampling`, { prompt: 'nobody is there to answer' })
    await plain.call(`${prefix}test_elicitation`, { message: 'nobody is there to answer' })
    await plain.leave()
    await peer.leave()
  }
  for (const [server, prefix] of [
    ['contract', ''],
    ['stdio', ''],
    ['sse', ''],
    [undefined, 'contract__'],
    [undefined, 'stdio__'],
    [undefined, 'sse__'],
  ] as const) {
    player.begin(`tools of ${prefix}${server ?? 'all'}`)
    const peer = await LegacyPeer.open(player, at(stage, server), { capabilities: capable })
    for (const args of [
      {},
      { a: [1, null, { b: '' }] },
      { text: 'ä€𝄞\u0000\n"\\' },
      { big: 2 ** 53, small: -0.5e-7 },
    ])
      await peer.call(`${prefix}echo`, args)
    await peer.post(
      'call with odd spelling',
      `{ "id" :"\\u0061", "jsonrpc":"2.0", "params":{"arguments":{"n":1.0,"big":98765432109876543210},"name":"${prefix}echo","x":null},"method":"tools/call" }`,
    )
    await peer.call(`${prefix}client`)
    await peer.call(`${prefix}progress`, { steps: 3 }, { progressToken: 'steps' })
    await peer.call(`${prefix}progress`, { steps: 2 }, { progressToken: 0 })
    await peer.call(`${prefix}progress`, { steps: 2 })
    await peer.call(`${prefix}log`, { level: 'warning', count: 3, size: 5 })
    await peer.call(`${prefix}refuse`)
    await peer.call(`${prefix}none`)
    await asked(peer, `${prefix}sample`, {})
    await asked(peer, `${prefix}elicit`, {})
    await peer.ask('subscribe', 'resources/subscribe', {
      uri: server === undefined ? `breakwater://${prefix.slice(0, -2)}/test://x` : 'test://x',
    })
    await peer.ask('unsubscribe', 'resources/unsubscribe', {
      uri: server === undefined ? `breakwater://${prefix.slice(0, -2)}/test://x` : 'test://x',
    })
    await peer.leave()
  }
  player.begin('modern tools for a legacy client')
  for (const [server, prefix] of [
    ['extras', ''],
    [undefined, 'extras__'],
  ] as const) {
    const peer = await LegacyPeer.open(player, at(stage, server), { capabilities: capable })
    for (const tool of ['array', 'number', 'busy']) await peer.call(`${prefix}${tool}`)
    await peer.call(`${prefix}headers`, { region: 'eu', limit: 3, dry: true, place: { city: 'Köln' } })
    await peer.call(`${prefix}stream`, { steps: 2 }, { progressToken: 's' })
    await peer.call(`${prefix}stream`, { steps: 'two' })
    await asked(peer, `${prefix}ask`, { kinds: ['form'] })
    await asked(peer, `${prefix}ask`, { kinds: ['sampling'] })
    await peer.leave()
  }
  player.begin('methods that nobody knows')
  const raw = await LegacyPeer.open(player, at(stage, 'raw'), { capabilities: capable })
  await raw.post(
    'mirror',
    '{ "jsonrpc":"2.0", "id":"m\\u00e4", "x":1.0, "method":"raw/mirror","params":{"n":1.0,"\\u0061":[ ]} }',
  )
  await raw.post('mirror under a number', '{"jsonrpc":"2.0","id":1.50,"method":"raw/mirror","params":{}}')
  await raw.ask('error as result', 'raw/is_error')
  await raw.ask('says something before', 'raw/say', {
    texts: [
      '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}',
      'no JSON',
      '{"jsonrpc":"2.0","id":99,"result":{}}',
    ],
  })
  const question = raw.open('asks', raw.request('raw/ask', { id: '"q-1"', method: 'sampling/createMessage' }))
  await raw.answer((await question.events(2)).at(-1), { any: 1 })
  await question.end()
  await raw.ask('size', 'raw/size', { bytes: 3_000 })
  await raw.ask('too large', 'raw/size', { bytes: 70_000 })
  await raw.leave()
}

/** Calls a tool that asks, once for each possible answer. */
async function asked(peer: LegacyPeer, name: string, args: Record<string, unknown>): Promise<void> {
  const method = /sampl/.test(JSON.stringify([name, args])) ? 'sampling/createMessage' : 'elicitation/create'
  for (const answer of answers[method] ?? []) {
    const call = peer.open(`call ${name}`, peer.request('tools/call', { name, arguments: args }))
    // The first event of a stream carries only its id, for resuming.
    const question = (await call.events(2)).at(-1)
    messageOf(question)
    await peer.answer(question, answer)
    await call.end()
  }
}
