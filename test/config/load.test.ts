import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { folder, loadGood } from './files.ts'

test('an http server has one shape, however it was written', async (t) => {
  const { config } = await loadGood(
    t,
    `mcpServers:
  a: { url: "http://h/mcp" }
  b: { urls: ["http://h/1", "http://h/2"], type: streamable-http }
  c: { url: "http://h/sse", transport: sse }
  d: { url: "http://h/mcp", type: streamableHttp, forwardHeaders: [X-Tenant] }
  e: { url: "http://h/mcp", forwardHeaders: { X-User-Token: Authorization } }`,
  )
  const { a, b, c, d, e } = config.mcpServers
  assert.ok(
    a?.type === 'http' && b?.type === 'http' && c?.type === 'sse' && d?.type === 'http' && e?.type === 'http',
  )
  assert.deepEqual(
    [a.urls, b.urls, c.urls],
    [['http://h/mcp'], ['http://h/1', 'http://h/2'], ['http://h/sse']],
  )
  assert.deepEqual(
    [a.forwardHeaders, d.forwardHeaders, e.forwardHeaders],
    [{}, { 'x-tenant': 'x-tenant' }, { 'x-user-token': 'authorization' }],
  )
  assert.deepEqual(
    Object.keys(a).filter((key) => ['url', 'transport'].includes(key)),
    [],
  )
})

test('defaults fill in all missing keys', async (t) => {
  const { config } = await loadGood(t, 'mcpServers: { a: { command: run } }')
  assert.equal(config.gateway.listen, '127.0.0.1:8080')
  assert.equal(config.gateway.environment, undefined)
  assert.equal(config.gateway.maxBody, 4 * 1024 ** 2)
  assert.equal(config.gateway.sessions.idle, 1_800_000)
  assert.deepEqual(config.policies.defaults.attemptTimeout, {
    timeout: 60_000,
    onProgress: 'extend',
    maxTotalTimeout: 600_000,
  })
  assert.deepEqual(
    Object.keys(config.policies.defaults).filter((name) => ['degrade', 'hedge', 'rateLimit'].includes(name)),
    [],
    'policies that change results are off by default',
  )
  assert.deepEqual([config.policies.overrides, config.policies.sets], [[], {}])
  assert.deepEqual(config.mcpServers.a, {
    type: 'stdio',
    command: 'run',
    args: [],
    env: {},
    sharing: 'shared',
    processes: { max: 100 },
    era: 'auto',
    disabled: false,
    trusted: false,
    protected: false,
    tools: { include: ['*'], exclude: [] },
    timeouts: { connect: 5_000, start: 180_000, discovery: 10_000, idle: 300_000 },
    forwardBaggage: false,
    grace: 60_000,
    refresh: 300_000,
    health: { every: 60_000, failures: 2, slow: { baseline: 2 } },
    deliver: 'protocol_error',
    maxReply: 16 * 1024 ** 2,
    maxList: 16 * 1024 ** 2,
  })
})

test('variables are filled in everywhere, and take the type that their place asks for', async (t) => {
  const { config } = await loadGood(
    t,
    `gateway: { maxInFlight: "\${MAX}", listTimeout: "\${WAIT:-3s}", environment: "\${env:WHERE}" }
mcpServers: { a: { command: run, args: ["\${MAX}", "--out=$\${x}"], disabled: "\${OFF:-false}" } }
policies: { defaults: { attemptTimeout: "\${LIMIT:-false}" } }`,
    { MAX: '77', WHERE: 'staging' },
  )
  assert.equal(config.gateway.maxInFlight, 77)
  assert.equal(config.gateway.listTimeout, 3_000)
  assert.equal(config.gateway.environment, 'staging')
  assert.deepEqual(config.mcpServers.a?.type === 'stdio' && config.mcpServers.a.args, ['77', '--out=${x}'])
  assert.equal(config.mcpServers.a?.disabled, false)
  assert.equal(config.policies.defaults.attemptTimeout, false)
})

test('a plain value keeps its type', async (t) => {
  const { config } = await loadGood(t, 'mcpServers: { a: { command: run, args: ["1"], env: { N: "0" } } }')
  assert.deepEqual(
    config.mcpServers.a?.type === 'stdio' && [config.mcpServers.a.args, config.mcpServers.a.env],
    [['1'], { N: '0' }],
  )
})

test('anchors and merges save repetition', async (t) => {
  const { config } = await loadGood(
    t,
    `mcpServers:
  a: &common { url: "http://a/mcp", connections: 5, grace: 1s }
  b: { <<: *common, url: "http://b/mcp" }
  c: { <<: [{ connections: 6 }, *common] }`,
  )
  const { b, c } = config.mcpServers
  assert.ok(b?.type === 'http' && c?.type === 'http')
  assert.deepEqual([b.urls, b.connections, b.grace], [['http://b/mcp'], 5, 1_000])
  assert.deepEqual([c.urls, c.connections], [['http://a/mcp'], 6])
})

test('the hash depends on the content of a config, not on its notation', async (t) => {
  const one = await loadGood(t, 'mcpServers: { a: { command: run, grace: 60s } }')
  const same = await loadGood(t, '{"mcpServers":{"a":{"grace":60000,"command":"${CMD}","type":"stdio"}}}', {
    CMD: 'run',
  })
  const other = await loadGood(t, 'mcpServers: { a: { command: run, grace: 61s } }')
  assert.equal(one.hash, same.hash)
  assert.notEqual(one.hash, other.hash)
})

test('a probably unintended setting is a warning with its place', async (t) => {
  const { warnings } = await loadGood(
    t,
    `mcpServers:
  a: { command: run, tools: { include: [] } }
  b:
    urls: ["http://h/mcp", "http://h/mcp"]
    tls: { rejectUnauthorized: false }
policies:
  overrides:
    - { match: { server: search }, attemptTimeout: false }
    - { match: { server: "?", tool: x, method: "prompts/*" } }
chaos: { enabled: true }`,
  )
  assert.deepEqual(warnings, [
    'main.yaml:2:31  mcpServers.a.tools.include  warning: is empty, so no tool is offered',
    'main.yaml:4:5  mcpServers.b.urls  warning: lists a replica more than once',
    'main.yaml:5:5  mcpServers.b.tls  warning: has no effect: no URL of this server is https://',
    'main.yaml:8:26  policies.overrides[0].match.server  warning: "search" matches no server',
    'main.yaml:9:7  policies.overrides[1]  warning: sets no policy',
    'main.yaml:9:48  policies.overrides[1].match.method  warning: never matches: only calls of the method tools/call have a tool',
    'main.yaml:10:10  chaos.enabled  warning: has no effect: gateway.environment is not set, which counts as production; set it to the name of a test environment',
  ])
})

test('a setting without effect is a warning with its place', async (t) => {
  const { warnings } = await loadGood(
    t,
    `mcpServers:
  a: { command: run, tools: { exclude: [hidden] } }
  b: { command: run, tools: { exclude: ["*", b__x] } }
  off: { command: run, disabled: true }
policies:
  overrides:
    - { match: { server: a, tool: a__read }, retry: false }
    - { match: { server: a, tool: hidden }, retry: false }
    - { match: { method: tools/cal }, retry: false }
    - { match: { server: "of*" }, retry: false }
    - { match: { server: a, tool: read }, effect: read_only, retry: false }
    - { match: { server: a, tool: "*" }, retry: false, hedge: false }
    - { match: { server: "*" }, hedge: false }
    - { match: {}, hedge: false, retry: {} }
  sets: { once: { retry: false } }
gateway: { environment: test }
chaos:
  faults:
    - { name: f, type: rpc.error, rate: 0, ttl: 1m, match: { server: a, tool: hidden }, allowWrites: true }
    - { name: g, type: rpc.error, rate: 1, ttl: 1m, match: { server: off } }
experiments: [{ name: e, match: { server: a, tool: hidden }, arms: { control: default, treatment: once } }]`,
  )
  const later = (index: number) =>
    `has no effect: overrides[${index}] comes later and sets the same for all its calls`
  const left = '"hidden" is offered to no agent: tools.include or tools.exclude leaves the tool out'
  assert.deepEqual(
    warnings.map((warning) => warning.replace(/^main\.yaml:[\d:]+ +/, '')),
    [
      'mcpServers.b.tools.exclude  warning: leaves out all tools, so no tool is offered',
      'mcpServers.b.tools.exclude[1]  warning: at /mcp the tool "x" of b is called "b__x"; if you mean this tool, write "x"',
      'mcpServers.off  warning: is disabled, and left out',
      `policies.overrides[0]  warning: ${later(5)}`,
      'policies.overrides[0].match.tool  warning: at /mcp the tool "read" of a is called "a__read"; if you mean this tool, write "read"',
      `policies.overrides[1]  warning: ${later(5)}`,
      `policies.overrides[1].match.tool  warning: ${left}`,
      `policies.overrides[2]  warning: ${later(7)}`,
      'policies.overrides[2].match.method  warning: "tools/cal" is no method of the protocol; did you mean tools/call?',
      `policies.overrides[3]  warning: ${later(7)}`,
      'policies.overrides[3].match.server  warning: "of*" matches disabled servers only',
      `policies.overrides[5]  warning: ${later(7)}`,
      `policies.overrides[6]  warning: ${later(7)}`,
      'chaos.faults[0].rate  warning: a rate of 0 hits no call',
      `chaos.faults[0].match.tool  warning: ${left}`,
      'chaos.faults[1].match.server  warning: "off" matches disabled servers only',
      `experiments[0].match.tool  warning: ${left}`,
    ],
  )
})

test('timeouts of servers, disabled servers and unreachable limits of arms give no warning', async (t) => {
  const { warnings } = await loadGood(
    t,
    `mcpServers:
  slow: {url: 'http://127.0.0.1:39001/mcp', timeout: 120s}
  a1: { command: x }
  b1: { command: x, trusted: true }
  b-old: { command: x, disabled: true }
policies:
  defaults: {deadline: {total: 30s}, attemptTimeout: {timeout: 20s}, hedge: {after: 50s}}
  overrides:
    - {match: {tool: report_*}, attemptTimeout: {timeout: 100s}}
    - {match: {server: b-old}, bulkhead: {concurrent: 1}}
    - {match: {server: a1, tool: dump}, bulkhead: {concurrent: 1}}
    - {match: {server: a1, method: 'resources/*'}, bulkhead: {concurrent: 1}}
    - {match: {server: a1}, degrade: {fallback: {tool: x, server: b-old}}}
  sets: { s: { retry: false } }
experiments:
  - { name: e2, match: { server: '?-old' }, arms: {control: default, treatment: s} }
  - { name: e3, match: { server: 'b*' }, arms: {control: default, treatment: s} }
  - { name: e4, match: { server: 'a1', tool: 'get_*' }, arms: {control: default, treatment: s} }`,
  )
  assert.deepEqual(
    warnings.map((warning) => warning.replace(/^main\.yaml:[\d:]+ +/, '')),
    [
      'mcpServers.b-old  warning: is disabled, and left out',
      'policies.overrides[1].match.server  warning: "b-old" matches disabled servers only',
      'policies.overrides[4].degrade.fallback.server  warning: "b-old" is disabled: it answers nothing',
      'experiments[0].match.server  warning: "?-old" matches disabled servers only',
    ],
  )
})

test('a tool that the gateway itself calls, or that is known by this name, is not idle', async (t) => {
  const config = `mcpServers:
  a: { command: run, tools: { exclude: [hidden] }, health: { tool: { name: hidden } } }
gateway: { environment: test }
chaos: { faults: [{ name: f, type: conn.latency, rate: 1, ttl: 1m, match: { server: a, tool: hidden }, allowWrites: true, distribution: { kind: fixed, delay: 1s } }] }
policies: { overrides: [{ match: { server: a, tool: a__x }, retry: false }] }`
  const path = join(await folder(t, { 'main.yaml': config }), 'main.yaml')
  const warned = async (tools?: ReadonlyMap<string, readonly string[]>) => {
    const loaded = await loadConfig(path, {}, tools)
    return loaded.ok ? loaded.warnings.map(({ message }) => message) : loaded.errors
  }
  assert.deepEqual(await warned(), [
    'at /mcp the tool "x" of a is called "a__x"; if you mean this tool, write "x"',
  ])
  assert.deepEqual(await warned(new Map([['a', ['a__x', 'hidden']]])), [])
})

test('faults in an environment that is not known to be for tests are a warning, unless the config names it', async (t) => {
  const servers = 'mcpServers: { a: { url: "http://h/mcp" } }'
  const warned = async (gateway: string) =>
    (await loadGood(t, `${servers}\ngateway: { ${gateway} }\nchaos: { enabled: true }`)).warnings
  const [stage, ...more] = await warned('environment: stage')
  assert.match(
    stage!,
    /chaos\.enabled {2}warning: has no effect: gateway\.environment is "stage", which is none of dev/,
  )
  assert.deepEqual(more, [])
  assert.match(
    (await warned('environment: prod'))[0]!,
    /has no effect: gateway\.environment is "prod", which counts as production$/,
  )
  assert.deepEqual(await warned('environment: stage, chaosEnvironments: [stage]'), [])
  assert.deepEqual(await warned('environment: staging'), [])
  const { warnings } = await loadGood(
    t,
    `${servers}\ngateway: { environment: test }\nchaos: { enabled: true }`,
    {
      NODE_ENV: 'production',
    },
  )
  assert.match(warnings[0]!, /has no effect: the environment variable NODE_ENV is "production"/)
})

test('a config without servers is usable, with a warning', async (t) => {
  const { warnings } = await loadGood(t, 'gateway: {}')
  assert.deepEqual(warnings, [
    'main.yaml:1:1  mcpServers  warning: no server is configured, or all are disabled',
  ])
})
