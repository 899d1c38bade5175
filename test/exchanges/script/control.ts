import type { Player } from '../player.ts'
import type { Stage } from '../stage.ts'
import type { WireRequest } from '../wire.ts'
import { LegacyPeer } from './peers.ts'
import { at, atStrict, bearer } from './places.ts'

const json = ['content-type', 'application/json'] as const

const reads = [
  '/admin/servers',
  '/admin/servers/legacy',
  '/admin/servers/contract',
  '/admin/servers/modern',
  '/admin/servers/extras',
  '/admin/servers/stdio',
  '/admin/servers/sse',
  '/admin/servers/down',
  '/admin/servers/off',
  '/admin/servers/nowhere',
  '/admin/mesh',
  '/admin/mesh?set=none',
  '/admin/breakers',
  '/admin/chaos',
  '/admin/chaos/journal?limit=5',
  '/admin/chaos/journal?limit=none',
  '/admin/chaos/journal?since=3&limit=2',
  '/admin/chaos/explain?call=3',
  '/admin/chaos/explain?call=none',
  '/admin/chaos/explain',
  '/admin/chaos/plan?last=1h',
  '/admin/chaos/plan?last=long',
  '/chaos/status',
  '/chaos/status?style=snake_case',
  '/chaos/status?style=other',
  '/admin/nothing',
  '/livez',
  '/readyz',
  '/',
]

const changes: readonly (readonly [method: string, path: string, body: unknown])[] = [
  ['POST', '/admin/breakers/nowhere/x', { action: 'open' }],
  ['POST', '/admin/chaos/kill', { by: 'the script', why: 'to record' }],
  ['POST', '/admin/chaos/arm', {}],
  ['POST', '/admin/chaos/unkill', { by: 'the script' }],
  ['POST', '/admin/chaos/unkill', { by: 7 }],
  ['POST', '/admin/chaos/renew', {}],
  ['PUT', '/admin/chaos', { faults: [{ name: 'x', type: 'no.such', rate: 2 }] }],
  ['PUT', '/admin/chaos', 7],
  [
    'PUT',
    '/admin/chaos',
    {
      seed: 1,
      faults: [{ name: 'x', type: 'conn.refused', rate: 1, ttl: '1m', match: { server: 'shaky' } }],
    },
  ],
  ['PUT', '/admin/chaos?other=1', { faults: [] }],
  ['PUT', '/admin/chaos', { faults: [] }],
  ['POST', '/chaos/inject', {}],
  [
    'POST',
    '/chaos/inject',
    { target: 'shaky', config: { type: 'error', statusCode: 503 }, durationMs: 60_000 },
  ],
  ['POST', '/chaos/clear', { faultId: 'none' }],
  ['POST', '/chaos/clear', {}],
  ['POST', '/chaos/clear-all', {}],
  ['POST', '/admin/outcomes', { call: 1, outcome: 'safe' }],
  ['POST', '/admin/outcomes', [{ intent: 'none', outcome: 'failed' }]],
  ['POST', '/admin/outcomes', { call: 1, outcome: 'good' }],
  ['POST', '/admin/servers', { name: 'bad name', url: 'x' }],
  ['POST', '/admin/servers', {}],
  ['POST', '/admin/servers', { name: 'late', command: 'true' }],
  ['DELETE', '/admin/servers/legacy', undefined],
  ['DELETE', '/admin/servers/nowhere', undefined],
  ['POST', '/admin/servers/nowhere/restart', {}],
]

/** Plays the requests of operators; records the names, types and labels of all metrics. */
export async function playControl(player: Player, stage: Stage): Promise<void> {
  const { open, strict } = stage
  const control = new URL(open.control).host
  player.begin('sessions of agents')
  const session = await LegacyPeer.open(player, at(stage, 'legacy'))
  const get = (path: string): WireRequest => ({ method: 'GET', path, headers: [] })
  player.begin('what operators ask')
  for (const path of reads) await player.send(path, control, get(path))
  player.begin('what operators do')
  for (const [method, path, body] of changes) {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) }
    await player.send(`${method} ${path}`, control, {
      method,
      path,
      headers: [json, bearer(open.token)],
      ...sent,
    })
  }
  await player.send('a body that is no JSON', control, {
    method: 'PUT',
    path: '/admin/chaos',
    headers: [json, bearer(open.token)],
    body: '{',
  })
  await player.send('a page of another origin', control, {
    ...get('/admin/servers'),
    headers: [['origin', 'https://evil.example']],
  })
  await player.send('another host', control, {
    ...get('/admin/servers'),
    headers: [['host', 'evil.example']],
  })
  await player.send('another site', control, {
    ...get('/admin/servers'),
    headers: [['sec-fetch-site', 'cross-site']],
  })
  await player.send('without the token', control, {
    method: 'POST',
    path: '/admin/reload',
    headers: [json],
    body: '{}',
  })
  await player.send('with another token', control, {
    method: 'POST',
    path: '/admin/reload',
    headers: [json, bearer('other')],
    body: '{}',
  })
  await session.leave()
  player.begin('metrics')
  for (const accept of ['text/plain', 'application/openmetrics-text; version=1.0.0'])
    await player.send(accept, control, { ...get('/metrics'), headers: [['accept', accept]] }, metricNames)
  await playStrict(player, stage, new URL(strict.control).host)
}

/** Returns each metric's name, type and labels from an exposition, without values: they depend on time and machine. */
function metricNames(text: string): string {
  // Metrics of Node depend on the activity of the process.
  const ours = text.split('\n').filter((line) => /^(?:# (?:HELP|TYPE|UNIT) )?breakwater_|^# EOF/.test(line))
  const labelsOf = new Map<string, Set<string>>()
  const lines = ours.map((line) => {
    if (line === '' || line.startsWith('#')) return line
    const [, name = '', labels = ''] = /^([^{ ]+)(?:\{(.*)\})? /.exec(line) ?? []
    const known = labelsOf.get(name) ?? new Set()
    labelsOf.set(name, known)
    for (const [, label = ''] of labels.matchAll(/([a-zA-Z_]\w*)="(?:[^"\\]|\\.)*"/g)) known.add(label)
    return name
  })
  const named = (line: string) => {
    const labels = labelsOf.get(line)
    return labels === undefined ? line : `${line}{${[...labels].join()}}`
  }
  return [...new Set(lines)].map(named).join('\n')
}

/** Plays a gateway with its own token, few sessions, slow requests, small bodies, and plain HTTP to one server. */
async function playStrict(player: Player, stage: Stage, control: string): Promise<void> {
  player.begin('a strict gateway')
  const { address } = atStrict(stage)
  for (const path of ['/readyz', '/livez'])
    await player.send(path, address, { method: 'GET', path, headers: [] })
  const peer = await LegacyPeer.open(player, atStrict(stage, 'one'))
  for (let n = 0; n < 24; n++) await peer.ask('ping in a hurry', 'ping')
  const others: LegacyPeer[] = []
  for (let n = 0; n < 5; n++) others.push(await LegacyPeer.open(player, atStrict(stage)))
  await others[0]?.post(
    'a large body',
    `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"${'x'.repeat(2_048)}"}}`,
  )
  await others[0]?.post(
    'as large as may be',
    JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping', params: { x: 'x'.repeat(2_048 - 59) } }),
  )
  for (const other of [peer, ...others]) await other.leave()
  const plain = (method: string, path: string, body?: string): WireRequest => ({
    method,
    path,
    headers: [json],
    body,
  })
  for (const [method, path, body] of [
    ['GET', '/proxy/plain/nothing', undefined],
    ['POST', '/proxy/plain/mcp', '{"jsonrpc":"2.0","id":1,"method":"ping"}'],
    ['GET', '/proxy/one/x', undefined],
    ['GET', '/proxy/nowhere/x', undefined],
    ['GET', '/proxy/plain/../x', undefined],
    ['GET', '/proxy/plain/%2e%2e/x', undefined],
    ['GET', '/proxy/plain/x', 'a body'],
    ['POST', '/proxy/plain/mcp', 'x'.repeat(3_000)],
  ] as const)
    await player.send(`${method} ${path}`, address, plain(method, path, body))
  for (const [path, headers] of [
    ['/admin/servers', []],
    ['/admin/servers', [bearer()]],
    ['/admin/servers', [bearer('wrong')]],
    ['/admin/mesh', [bearer()]],
    ['/admin/mesh?set=cautious', [bearer()]],
  ] as const)
    await player.send(`GET ${path}`, control, { method: 'GET', path, headers })
}
