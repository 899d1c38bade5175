import { headersOf, metaOf } from '../../e2e/support/modern-client.ts'
import type { Player } from '../player.ts'
import type { Stage } from '../stage.ts'
import type { WireRequest } from '../wire.ts'
import { LegacyPeer, ModernPeer, postHeaders } from './peers.ts'
import { at } from './places.ts'

/** Bodies that are invalid messages, or no messages. */
const bodies: readonly string[] = [
  '',
  ' ',
  '{',
  '{"jsonrpc":',
  'hello',
  '{"a":1}{"b":2}',
  "{'jsonrpc':'2.0'}",
  '{"jsonrpc":"2.0","id":1,"method":"ping",}',
  '\ufeff{"jsonrpc":"2.0","id":1,"method":"ping"}',
  '{"jsonrpc":"2.0","id":1,"method":"ping"}\u0000',
  '{"jsonrpc":"2.0","id":01,"method":"ping"}',
  '{"jsonrpc":"2.0","id":1,"method":"\u0001"}',
  'null',
  'true',
  '7',
  '"x"',
  '{}',
  '{"jsonrpc":"1.0","id":1,"method":"ping"}',
  '{"jsonrpc":2.0,"id":1,"method":"ping"}',
  '{"id":1,"method":"ping"}',
  '{"jsonrpc":"2.0","id":1}',
  '{"jsonrpc":"2.0","id":1,"method":7}',
  '{"jsonrpc":"2.0","id":null,"method":"ping"}',
  '{"jsonrpc":"2.0","id":true,"method":"ping"}',
  '{"jsonrpc":"2.0","id":{},"method":"ping"}',
  '{"jsonrpc":"2.0","id":[1],"method":"ping"}',
  '{"jsonrpc":"2.0","id":1e400,"method":"ping"}',
  '{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}',
  '{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}',
  '{"jsonrpc":"2.0","id":1,"method":"ping","params":null}',
  '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}',
  '{"jsonrpc":"2.0","id":1,"result":7}',
  '{"jsonrpc":"2.0","id":"never asked","result":{}}',
  '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
  '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
  '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"k":1,"k":2}}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"k":1,"\\u006b":2}}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"Name":"a"}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","Params":{"name":"a"}}',
  '{"jsonrpc":"2.0","ID":1,"method":"ping"}',
  '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_META":{}}}',
  '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"__proto__":{"x":1}}}',
  `{"jsonrpc":"2.0","id":1,"method":"ping","params":${'{"a":'.repeat(130)}1${'}'.repeat(130)}}`,
  `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":${'['.repeat(130)}${']'.repeat(130)}}}`,
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":null}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"contract__echo","arguments":[]}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"contract__echo","arguments":"x"}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"contract__echo","arguments":null}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"contract__echo","task":7}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"contract__echo","_meta":7}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"contract__echo","_meta":{"progressToken":{}}}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":7}}',
  '{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":[]}}',
  '{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{}}',
  '{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":7}}',
  '{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"breakwater://nowhere/x"}}',
  '{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"test://x"}}',
  '{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":{}}}',
  '{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":"x"}}',
  '{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{}}',
  '{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":7}}',
  '{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":7}}',
  '{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"none"}}',
  '{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{"cursor":[]}}',
  '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":7}}',
  '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientInfo":[]}}',
  '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":"x"}}',
  '{"jsonrpc":"2.0","method":"initialize","params":{}}',
  '{"jsonrpc":"2.0","id":{},"method":"initialize","params":{}}',
  `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"${'n'.repeat(300)}"}}`,
  `{"jsonrpc":"2.0","id":1,"method":"${'m'.repeat(300)}"}`,
  `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"${'x'.repeat(66_000)}"}}`,
]

type Header = readonly [name: string, value: string]

const ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}'

/** Wrong headers, in place of a POST's headers. */
const headers: readonly (readonly [title: string, headers: readonly Header[]])[] = [
  ['no content type', [['accept', '*/*']]],
  [
    'text',
    [
      ['content-type', 'text/plain'],
      ['accept', '*/*'],
    ],
  ],
  [
    'a form',
    [
      ['content-type', 'application/x-www-form-urlencoded'],
      ['accept', '*/*'],
    ],
  ],
  [
    'a charset',
    [
      ['content-type', 'application/json; charset=utf-8'],
      ['accept', '*/*'],
    ],
  ],
  [
    'another charset',
    [
      ['content-type', 'application/json; charset=latin1'],
      ['accept', '*/*'],
    ],
  ],
  [
    'JSON of a kind',
    [
      ['content-type', 'application/vnd.api+json'],
      ['accept', '*/*'],
    ],
  ],
  ['no accept', [['content-type', 'application/json']]],
  [
    'accept JSON',
    [
      ['content-type', 'application/json'],
      ['accept', 'application/json'],
    ],
  ],
  [
    'accept events',
    [
      ['content-type', 'application/json'],
      ['accept', 'text/event-stream'],
    ],
  ],
  [
    'accept HTML',
    [
      ['content-type', 'application/json'],
      ['accept', 'text/html'],
    ],
  ],
  [
    'accept any',
    [
      ['content-type', 'application/json'],
      ['accept', '*/*;q=0.1'],
    ],
  ],
  ['a foreign host', [...postHeaders, ['host', 'evil.example']]],
  ['localhost', [...postHeaders, ['host', 'localhost']]],
  ['a foreign origin', [...postHeaders, ['origin', 'https://evil.example']]],
  ['no origin at all', [...postHeaders, ['origin', 'null']]],
  ['an allowed origin', [...postHeaders, ['origin', 'https://app.example.com']]],
  ['an origin of this machine', [...postHeaders, ['origin', 'http://localhost:3000']]],
  ['another site', [...postHeaders, ['sec-fetch-site', 'cross-site']]],
  ['an unknown encoding', [...postHeaders, ['content-encoding', 'gzip']]],
  ['an expectation', [...postHeaders, ['expect', 'something']]],
  ['an unknown session', [...postHeaders, ['mcp-session-id', 'nobody']]],
  ['an empty session', [...postHeaders, ['mcp-session-id', '']]],
  ['an unknown version', [...postHeaders, ['mcp-protocol-version', '1999-01-01']]],
  ['an older version', [...postHeaders, ['mcp-protocol-version', '2024-11-05']]],
  [
    'a version twice',
    [...postHeaders, ['mcp-protocol-version', '2025-06-18'], ['mcp-protocol-version', '2025-06-18']],
  ],
  ['the modern version', [...postHeaders, ['mcp-protocol-version', '2026-07-28']]],
  ['other credentials', [...postHeaders, ['authorization', 'Bearer other']]],
]

/** Requests that break HTTP, or whose method is not served. */
const requests: readonly (readonly [title: string, request: WireRequest])[] = [
  ...['PUT', 'PATCH', 'OPTIONS', 'HEAD', 'TRACE', 'GET', 'DELETE', 'BREW'].map(
    (method) => [method, { method, path: '/mcp', headers: [['connection', 'close']] }] as const,
  ),
  ['GET without accept', { method: 'GET', path: '/mcp', headers: [] }],
  ['GET of JSON', { method: 'GET', path: '/mcp', headers: [['accept', 'application/json']] }],
  ['GET without session', { method: 'GET', path: '/mcp', headers: [['accept', 'text/event-stream']] }],
  [
    'GET of the modern era',
    {
      method: 'GET',
      path: '/mcp',
      headers: [
        ['accept', 'text/event-stream'],
        ['mcp-protocol-version', '2026-07-28'],
      ],
    },
  ],
  [
    'DELETE of the modern era',
    { method: 'DELETE', path: '/mcp', headers: [['mcp-protocol-version', '2026-07-28']] },
  ],
  [
    'DELETE of an unknown session',
    { method: 'DELETE', path: '/mcp', headers: [['mcp-session-id', 'nobody']] },
  ],
  ['no length', { method: 'POST', path: '/mcp', headers: postHeaders }],
  [
    'a length that is none',
    {
      method: 'POST',
      path: '/mcp',
      headers: [...postHeaders, ['content-length', 'x']],
      body: ping,
      ownLength: true,
    },
  ],
  [
    'two lengths',
    {
      method: 'POST',
      path: '/mcp',
      headers: [...postHeaders, ['content-length', '1'], ['content-length', '2']],
      body: ping,
      ownLength: true,
    },
  ],
  [
    'a large length',
    {
      method: 'POST',
      path: '/mcp',
      headers: [...postHeaders, ['content-length', '99999999']],
      body: ping,
      ownLength: true,
    },
  ],
  [
    'a length and chunks',
    {
      method: 'POST',
      path: '/mcp',
      headers: [...postHeaders, ['content-length', '5'], ['transfer-encoding', 'chunked']],
      body: '0\r\n\r\n',
      ownLength: true,
    },
  ],
  [
    'chunks',
    {
      method: 'POST',
      path: '/mcp',
      headers: [...postHeaders, ['transfer-encoding', 'chunked']],
      body: `28\r\n${ping}\r\n0\r\n\r\n`,
      ownLength: true,
    },
  ],
  [
    'a header with a bad name',
    { method: 'POST', path: '/mcp', headers: [...postHeaders, ['bad name', 'x']], body: ping },
  ],
  ['no host', { method: 'POST', path: '/mcp', headers: [...postHeaders, ['host', '']], body: ping }],
  ...[
    '/',
    '/mcp/',
    '/mcp/nowhere',
    '/mcp/legacy/x',
    '/mcp/%6Cegacy',
    '/mcp/%zz',
    '/mcp?x=1',
    '/nothing',
    '/proxy/legacy/x',
    '/mcp/__proto__',
    '//mcp',
  ].map((path) => [`POST ${path}`, { method: 'POST', path, headers: postHeaders, body: ping }] as const),
  ...['/', '/livez', '/healthz', '/health', '/readyz', '/metrics', '/admin/servers'].map(
    (path) => [`GET ${path}`, { method: 'GET', path, headers: [] }] as const,
  ),
]

export async function playMalformed(player: Player, stage: Stage): Promise<void> {
  const titled = (body: string) => (body.length <= 80 ? body : `${body.slice(0, 60)}… (${body.length})`)
  for (const server of [undefined, 'contract']) {
    player.begin(`bodies at ${server ?? 'all'}`)
    const peer = await LegacyPeer.open(player, at(stage, server))
    for (const body of bodies) await peer.post(titled(body), body)
    await peer.leave()
  }
  player.begin('bodies without a session')
  const { address } = at(stage)
  for (const body of bodies.slice(0, 48))
    await player.send(titled(body), address, { method: 'POST', path: '/mcp', headers: postHeaders, body })
  player.begin('bodies of the modern era')
  const modern = new ModernPeer(player, at(stage))
  for (const body of bodies)
    await modern.post(titled(body), body, [
      ['mcp-protocol-version', '2026-07-28'],
      ['mcp-method', 'ping'],
    ])
  player.begin('headers')
  for (const [title, given] of headers)
    await player.send(title, address, { method: 'POST', path: '/mcp', headers: given, body: ping })
  player.begin('headers of a session')
  const peer = await LegacyPeer.open(player, at(stage), { version: '2024-11-05' })
  for (const [title, given] of headers.filter(([, each]) => each.length > 2))
    await peer.post(title, ping, given.slice(2))
  await peer.leave()
  player.begin('requests')
  for (const [title, request] of requests) await player.send(title, address, request)
  await playModernEnvelopes(player, stage)
}

/** Plays modern requests with missing or wrong envelopes. */
async function playModernEnvelopes(player: Player, stage: Stage): Promise<void> {
  const peer = new ModernPeer(player, at(stage))
  const message = {
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: { name: 'contract__echo', arguments: {}, _meta: metaOf() },
  }
  const usual = Object.entries(headersOf(message))
  player.begin('headers of the modern era')
  const text = JSON.stringify(message)
  for (const [left] of usual)
    await peer.post(
      `without ${left}`,
      text,
      usual.filter(([name]) => name !== left),
    )
  for (const [name] of usual)
    await peer.post(
      `another ${name}`,
      text,
      usual.map(([each, value]) => [each, each === name ? 'other' : value] as const),
    )
  const encoded = (value: string) => `=?base64?${Buffer.from(value).toString('base64')}?=`
  for (const name of [
    encoded('contract__echo'),
    encoded('other'),
    '=?base64?!?=',
    ' contract__echo ',
    'CONTRACT__ECHO',
    '',
  ])
    await peer.post(
      `the name as ${name}`,
      text,
      usual.map(([each, value]) => [each, each === 'mcp-name' ? name : value] as const),
    )
  player.begin('envelopes of the modern era')
  const prefix = 'io.modelcontextprotocol/'
  const envelopes: readonly unknown[] = [
    undefined,
    null,
    7,
    [],
    {},
    { [`${prefix}protocolVersion`]: 7 },
    { [`${prefix}protocolVersion`]: '2026-07-28' },
    { [`${prefix}protocolVersion`]: '2025-11-25', [`${prefix}clientCapabilities`]: {} },
    { [`${prefix}protocolVersion`]: '2099-01-01', [`${prefix}clientCapabilities`]: {} },
    { ...metaOf(), [`${prefix}clientCapabilities`]: [] },
    { ...metaOf(), [`${prefix}clientInfo`]: 7 },
    { ...metaOf(), [`${prefix}logLevel`]: 7 },
    { ...metaOf(), progressToken: [] },
    { ...metaOf(), 'dev.breakwater/deadline-ms': 'soon' },
    { ...metaOf(), [`${prefix}clientInfo`]: { name: 'x'.repeat(20_000) } },
  ]
  for (const _meta of envelopes) {
    const body = JSON.stringify({ ...message, params: { ...message.params, _meta } })
    await peer.post(`_meta ${String(JSON.stringify(_meta)).slice(0, 80)}`, body, usual)
  }
  for (const version of ['2025-11-25', '2099-01-01']) {
    const meta = { ...metaOf(), [`${prefix}protocolVersion`]: version }
    const body = JSON.stringify({ ...message, params: { ...message.params, _meta: meta } })
    await peer.post(
      `version ${version} in header and body`,
      body,
      usual.map(([name, value]) => [name, name === 'mcp-protocol-version' ? version : value] as const),
    )
  }
}
