import assert from 'node:assert/strict'
import { test } from 'node:test'
import { policiesOf } from '../../src/config/call-timeouts.ts'
import { connectionOf } from '../../src/registry/connection.ts'
import { errorsOf, loadGood } from './files.ts'

const loadServers = (t: Parameters<typeof loadGood>[0], servers: object, rest: object = {}) =>
  loadGood(t, { 'mcp.json': JSON.stringify({ ...rest, mcpServers: servers }) })

test('unsuitable names are replaced, and the original names are kept', async (t) => {
  const written = [
    'microsoft/playwright-mcp',
    'io.github.x/y',
    'My Notes (local)',
    'Café',
    '@acme/x',
    'a',
    '.b-',
  ]
  const { config } = await loadServers(t, Object.fromEntries(written.map((name) => [name, { command: 'x' }])))
  assert.deepEqual(
    Object.entries(config.mcpServers).map(([name, { writtenName }]) => [name, writtenName]),
    [
      ['microsoft-playwright-mcp', 'microsoft/playwright-mcp'],
      ['io-github-x-y', 'io.github.x/y'],
      ['My-Notes-local', 'My Notes (local)'],
      ['Cafe', 'Café'],
      ['acme-x', '@acme/x'],
      ['a', undefined],
      ['b', '.b-'],
    ],
  )
})

test('a replaced name does not contain the separator', async (t) => {
  const { config } = await loadServers(t, { 'a b__c': { command: 'x' } }, { gateway: { separator: '__' } })
  assert.deepEqual(Object.keys(config.mcpServers), ['a-b-c'])
  const dashed = await loadServers(t, { 'a b': { command: 'x' } }, { gateway: { separator: '-' } })
  assert.deepEqual(Object.keys(dashed.config.mcpServers), ['a_b'])
})

test('two names with the same replacement are an error that names both', async (t) => {
  assert.deepEqual(
    await errorsOf(t, 'mcpServers:\n  a/b: { command: x }\n  a b: { command: x }\n  日本: { command: x }'),
    [
      '3:3  mcpServers["a b"]  would be known as "a-b", and so would "a/b"; rename one of the two',
      '4:3  mcpServers["日本"]  a server name needs a letter or a digit of A-Z a-z 0-9',
    ],
  )
})

test('findings about a renamed server use its original name', async (t) => {
  assert.deepEqual(await errorsOf(t, 'mcpServers:\n  a b: { command: x }\n  A-b: { command: x }'), [
    '3:3  mcpServers.A-b  differs from "a-b" only by case, which people cannot tell apart',
  ])
  const { warnings } = await loadGood(t, 'servers:\n  a b: { command: x, tools: { include: [] } }')
  assert.match(warnings[1] ?? '', /main\.yaml:2:31 {2}servers\["a b"\]\.tools\.include {2}warning: is empty/)
})

test('a rename of a server does not restart its connection', async (t) => {
  const [plain, renamed] = Object.values(
    (await loadServers(t, { a: { url: 'http://h/mcp' }, 'b c': { url: 'http://h/mcp', timeout: '3s' } }))
      .config.mcpServers,
  )
  assert.ok(plain && renamed)
  assert.equal(connectionOf(plain), connectionOf(renamed))
})

/** A bare timeout, the keys beside the timeout, and the meaning in milliseconds; undefined if ambiguous. */
const timeouts: readonly (readonly [timeout: number | string, beside: object, ms: number | undefined])[] = [
  [60, {}, 60_000],
  [60, { autoApprove: [] }, 60_000],
  [1_800, { alwaysAllow: [] }, 1_800_000],
  [60_000, { autoApprove: [] }, 60_000],
  [30_000, {}, 30_000],
  [2_000, { trust: true }, 2_000],
  [500, { includeTools: ['*'] }, 500],
  [2_000, {}, undefined],
  [2_000, { trust: true, alwaysAllow: [] }, undefined],
  ['2s', {}, 2_000],
  ['2000ms', { alwaysAllow: [] }, 2_000],
]

for (const [timeout, beside, ms] of timeouts) {
  test(`a timeout of ${timeout} beside ${JSON.stringify(beside)} is ${ms === undefined ? 'asked for with its unit' : `${ms} ms`}`, async (t) => {
    const file = { 'mcp.json': JSON.stringify({ mcpServers: { a: { command: 'x', timeout, ...beside } } }) }
    if (ms === undefined)
      return assert.deepEqual(await errorsOf(t, file), [
        'mcp.json:1:45  mcpServers.a.timeout  may be seconds or milliseconds: write "2000s" or "2000ms"',
      ])
    assert.equal((await loadGood(t, file)).config.mcpServers.a?.timeout, ms)
  })
}

test('the entries beside a timeout tell its unit', async (t) => {
  const { config } = await loadServers(t, {
    a: { command: 'x', timeout: 2_000 },
    b: { command: 'x', alwaysAllow: ['t'] },
  })
  assert.equal(config.mcpServers.a?.timeout, 2_000_000)
})

test('a timeout bounds the calls of its server, by an override in front of all others', async (t) => {
  const { config } = await loadServers(
    t,
    { a: { command: 'x', timeout: '10m' }, b: { command: 'x', timeout: '5s' }, c: { command: 'x' } },
    { policies: { overrides: [{ match: { server: 'b' }, attemptTimeout: { timeout: '1s' } }] } },
  )
  const { deadline, attemptTimeout } = config.policies.defaults
  assert.ok(deadline && attemptTimeout)
  assert.deepEqual(policiesOf(config).overrides, [
    {
      match: { server: 'a' },
      attemptTimeout: { ...attemptTimeout, timeout: 600_000 },
      deadline: { ...deadline, total: 600_000 },
    },
    { match: { server: 'b' }, attemptTimeout: { ...attemptTimeout, timeout: 5_000 } },
    { match: { server: 'b' }, attemptTimeout: { ...attemptTimeout, timeout: 1_000 } },
  ])
  assert.equal(config.mcpServers.a?.timeouts.idle, 600_000)
})

test('clients’ other names for keys of Breakwater mean the same', async (t) => {
  const { config } = await loadServers(t, {
    a: { httpUrl: 'http://h/a', includeTools: ['x'], excludeTools: ['y'] },
    b: { serverUrl: 'http://h/b', disabledTools: ['z'], tools: { exclude: ['w'] } },
    c: { command: 'x', enabled: false, transportType: 'stdio' },
    d: { url: 'http://h/d', type: 'streamable-http' },
  })
  const { a, b, c, d } = config.mcpServers
  assert.deepEqual(
    [a?.tools, b?.tools],
    [
      { include: ['x'], exclude: ['y'] },
      { include: ['*'], exclude: ['w', 'z'] },
    ],
  )
  assert.equal(c?.disabled, true)
  assert.deepEqual(
    [a, b, d].map((server) => server?.type === 'http' && [server.urls[0], server.detect]),
    [
      ['http://h/a', true],
      ['http://h/b', true],
      ['http://h/d', false],
    ],
  )
  const known = [
    'enabled',
    'includeTools',
    'excludeTools',
    'disabledTools',
    'transportType',
    'httpUrl',
    'serverUrl',
  ]
  for (const server of Object.values(config.mcpServers))
    assert.deepEqual(
      Object.keys(server).filter((key) => known.includes(key)),
      [],
    )
})

test('one setting given in two different words is an error', async (t) => {
  assert.deepEqual(
    await errorsOf(
      t,
      `mcpServers:
  a: { url: "http://h", httpUrl: "http://h" }
  b: { command: x, type: stdio, transportType: stdio }
  c: { command: x, disabled: true, enabled: true }
  d: { command: x, serverUrl: "http://h" }`,
    ),
    [
      '2:34  mcpServers.a.httpUrl  says the same as "url"; keep one',
      '3:48  mcpServers.b.transportType  says the same as "type"; keep one',
      '4:45  mcpServers.c.enabled  contradicts "disabled"; keep one',
      '5:31  mcpServers.d.serverUrl  a server has "command" or "serverUrl", not both',
    ],
  )
  assert.deepEqual(await errorsOf(t, 'mcpServers: {}\nmcp: { servers: {} }'), [
    '2:8  mcp.servers  says the same as "mcpServers"; keep one',
  ])
})

test('the settings of VS Code and Zed are read for their servers, and a typing error of ours stays one', async (t) => {
  const vscode =
    '{ "editor.fontSize": 12, "mcp": { "inputs": [], "servers": { "a b": { "command": "x" } } } }'
  const { config, warnings } = await loadGood(t, { 'settings.json': vscode })
  assert.deepEqual(Object.keys(config.mcpServers), ['a-b'])
  assert.deepEqual(warnings, [
    'settings.json:1:3  ["editor.fontSize"]  warning: is a setting of a client, and ignored',
    'settings.json:1:35  mcp.inputs  warning: asks a person, which a gateway cannot do: ignored; use environment variables',
    'settings.json:1:62  mcp.servers["a b"]  warning: is known as "a-b": at /mcp/a-b, and as a-b__… in the names of its tools',
  ])
  const included = await loadGood(t, {
    'main.yaml': 'mcpServers: { file: settings.json }',
    'settings.json': vscode,
  })
  assert.deepEqual(Object.keys(included.config.mcpServers), ['a-b'])
  assert.deepEqual(await errorsOf(t, { 's.json': '{ "theme": 1, "polices": {}, "context_servers": {} }' }), [
    's.json:1:15  polices  unknown key "polices"; did you mean "policies"?',
  ])
})

test('keys that no client writes stay errors', async (t) => {
  assert.match(
    (await errorsOf(t, 'mcpServers: { a: { command: x, colour: 1 } }')).join(),
    /unknown key "colour"/,
  )
  assert.deepEqual(await errorsOf(t, 'context_servers: { a: { settings: {} } }'), [
    '1:20  context_servers.a  is an extension that only Zed can start; write the "command" that it runs',
  ])
})

test('a server that is disabled needs none of its variables', async (t) => {
  const { config, warnings } = await loadGood(
    t,
    'mcpServers:\n  a: { url: "${NOWHERE}/mcp", disabled: true }\n  b: { command: x }',
  )
  assert.deepEqual(Object.keys(config.mcpServers), ['b'])
  assert.deepEqual(
    warnings.map((line) => line.replace(/^\S*main.yaml:/, '')),
    ['2:3  mcpServers.a  warning: is disabled, and left out'],
  )
  assert.equal((await errorsOf(t, 'mcpServers:\n  a: { url: "${NOWHERE}/mcp" }')).length, 1)
})
