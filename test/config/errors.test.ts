import assert from 'node:assert/strict'
import { test } from 'node:test'
import { errorsOf, load } from './files.ts'

test('a misspelt key is named, with the intended key', async (t) => {
  assert.deepEqual(
    await errorsOf(
      t,
      `gatway: {}
gateway:
  max_in_flight: 5
mcpServers:
  search:
    urlz: http://h/mcp
  files:
    comand: npx
policies:
  overrides:
    - match: { sever: a }`,
    ),
    [
      '1:1  gatway  unknown key "gatway"; did you mean "gateway"?',
      '3:3  gateway.max_in_flight  unknown key "max_in_flight"; did you mean "maxInFlight"?',
      '6:5  mcpServers.search.urlz  unknown key "urlz"; did you mean "url"?',
      '8:5  mcpServers.files.comand  unknown key "comand"; did you mean "command"?',
      '11:16  policies.overrides[0].match.sever  unknown key "sever"; did you mean "server"?',
    ],
  )
})

test('a key unlike any known key is named, with all allowed keys', async (t) => {
  assert.deepEqual(
    await errorsOf(t, 'weather: {}\nmcpServers: { a: { command: x, tools: { colour: 1 } } }'),
    [
      '1:1  weather  unknown key "weather"; allowed are $schema, gateway, mcpServers, servers, context_servers, mcp, inputs, policies, chaos, experiments, health, telemetry',
      '2:41  mcpServers.a.tools.colour  unknown key "colour"; allowed are include, exclude',
    ],
  )
})

test('a key of the other kind of server is no typing error', async (t) => {
  assert.deepEqual(
    await errorsOf(t, 'mcpServers:\n  a: { command: x, headers: {} }\n  b: { url: "http://h", args: [] }'),
    [
      '2:20  mcpServers.a.headers  "headers" belongs to another kind of entry (HTTP server)',
      '3:25  mcpServers.b.args  "args" belongs to another kind of entry (stdio server)',
    ],
  )
})

test('a delay beside the distribution of a fault is shown in its place', async (t) => {
  const fault = '{ name: a, type: conn.latency, rate: 1, ttl: 5m, delay: 1s }'
  assert.deepEqual(await errorsOf(t, `mcpServers: {}\nchaos:\n  faults:\n    - ${fault}`), [
    '4:56  chaos.faults[0].delay  "delay" is a key of "distribution": write distribution: { kind: fixed, delay: 1s }',
  ])
})

test('a server must be exactly one kind of thing', async (t) => {
  assert.deepEqual(
    await errorsOf(
      t,
      `mcpServers:
  none: {}
  both: { command: x, url: "http://h" }
  twice: { url: "http://h", urls: ["http://h"] }
  said: { type: http, transport: http, url: "http://h" }
  odd: { type: streamable, url: "http://h" }
  case: { transport: HTTP, url: "http://h" }
  wrong: { type: http, command: x }
  bare: { type: stdio }
  list: []`,
    ),
    [
      '2:3  mcpServers.none  expected a "command" to run or a "url" to reach',
      '3:28  mcpServers.both.url  a server has "command" or "url", not both',
      '4:29  mcpServers.twice.urls  says the same as "url"; keep one',
      '5:34  mcpServers.said.transport  says the same as "type"; keep one',
      '6:16  mcpServers.odd.type  expected "stdio", "auto", "http", "streamable-http", "streamableHttp" or "sse", found "streamable"',
      '7:22  mcpServers.case.transport  expected "stdio", "auto", "http", "streamable-http", "streamableHttp" or "sse", found "HTTP"; did you mean "http"?',
      '8:3  mcpServers.wrong.url  missing; expected the URL of the server',
      '8:24  mcpServers.wrong.command  "command" belongs to another kind of entry (stdio server)',
      '9:3  mcpServers.bare.command  missing; expected text',
      '10:3  mcpServers.list  expected a map, found a list',
    ],
  )
})

test('a finding says when a bound itself is excluded', async (t) => {
  assert.deepEqual(
    await errorsOf(
      t,
      `mcpServers: {}
policies:
  defaults: { breaker: { ratio: 0 } }
experiments:
  - { name: a, arms: { one: default, two: default }, share: 2, split: { one: 1, two: 0 } }`,
    ),
    [
      '3:33  policies.defaults.breaker.ratio  expected a number above 0 and up to 1, found 0',
      '5:61  experiments[0].share  expected a number above 0 and up to 1, found 2',
      '5:78  experiments[0].split.one  expected a number above 0 and below 1, found 1',
      '5:86  experiments[0].split.two  expected a number above 0 and below 1, found 0',
    ],
  )
})

test('a value of the wrong kind is shown, with what is allowed', async (t) => {
  assert.deepEqual(
    await errorsOf(
      t,
      `gateway:
  listen: 8080
  control: localhost
  maxInFlight: lots
  ready: al
  drain: 11m
  maxBody: 4MB
  sessions: { max: 0, idle: 10ms, maxInFlight: 1.5 }
  allowedOrigins: [https://app.example.com/]
mcpServers:
  a:
    command:
    args: [--port, 8080]
    disabled: yes
  b:
    url: ftp://h/mcp
    connections: 5000
    timeouts: 5s
  '': { command: x }
policies:
  defaults: { attemptTimeout: true }
  overrides:
    - { attemptTimeout: { timeout: 0 } }
    - { match: { tool: "a|b" } }`,
    ),
    [
      '2:11  gateway.listen  expected host:port, such as 127.0.0.1:8080, found 8080; write 127.0.0.1:8080',
      '3:12  gateway.control  expected host:port, such as 127.0.0.1:8080, found "localhost"',
      '4:16  gateway.maxInFlight  expected a whole number from 1 to 100000, found "lots"',
      '5:10  gateway.ready  expected "always", "any" or "all", found "al"; did you mean "all"?',
      '6:10  gateway.drain  expected a duration from 0ms to 10m, such as 250ms, 30s or 5m, found "11m"',
      '7:12  gateway.maxBody  expected a size from 1KiB to 256MiB, such as 512KiB or 4MiB, found "4MB"',
      '8:20  gateway.sessions.max  expected a whole number from 1 to 1000000, found 0',
      '8:29  gateway.sessions.idle  expected a duration from 1s to 24d, such as 250ms, 30s or 5m, found "10ms"',
      '8:48  gateway.sessions.maxInFlight  expected a whole number from 1 to 10000, found 1.5',
      '9:20  gateway.allowedOrigins[0]  expected an origin such as https://app.example.com, without a path, found "https://app.example.com/"',
      '12:13  mcpServers.a.command  expected text, found nothing',
      '13:20  mcpServers.a.args[1]  expected text, found a number; put it in quotes',
      '14:15  mcpServers.a.disabled  expected true or false, found "yes"',
      '16:10  mcpServers.b.url  expected a URL that begins with http:// or https://, and names a host, found "ftp://h/mcp"',
      '17:18  mcpServers.b.connections  expected a whole number from 1 to 4096, found 5000',
      '18:15  mcpServers.b.timeouts  expected a map, found text',
      '19:3  mcpServers[""]  expected a name, found ""',
      '21:31  policies.defaults.attemptTimeout  expected a map or false, found true',
      '23:7  policies.overrides[0].match  missing; expected a map',
      '23:36  policies.overrides[0].attemptTimeout.timeout  expected a duration from 1ms to 24d, such as 250ms, 30s or 5m, found 0',
      '24:24  policies.overrides[1].match.tool  expected a glob, in which * is any text and ? any character, without spaces and {}[]()|^$\\!, found "a|b"',
    ],
  )
})

test('the wrong part of a URL is named', async (t) => {
  const wrong = { 'http://h:99999/mcp': 'with a port up to 65535', 'http://h/#a': 'without #' }
  for (const [url, words] of Object.entries({
    ...wrong,
    'localhost:3000': 'begins with http://',
    'http://a b': 'without spaces',
  })) {
    const [line, ...more] = await errorsOf(t, `mcpServers: { a: { url: "${url}" } }`)
    assert.ok(line?.includes(words), line)
    assert.deepEqual(more, [])
  }
})

test('keys of other tools, and keys for anchors, give a suggestion', async (t) => {
  const policies = 'policies: { defaults: { retry: { maxAttempts: 3 }, breaker: { failureRate: 0.5 } } }'
  assert.deepEqual(await errorsOf(t, `x-base: &base {}\nmcpServers: {}\n${policies}`), [
    '1:1  x-base  unknown key "x-base"; define the anchor at its first use',
    '3:34  policies.defaults.retry.maxAttempts  unknown key "maxAttempts"; did you mean "maxRetries"?',
    '3:63  policies.defaults.breaker.failureRate  unknown key "failureRate"; did you mean "ratio"?',
  ])
})

test('a match with the server name of another file gets the name used here', async (t) => {
  const servers = 'servers: { "My Notes (local)": { command: x } }'
  const override = '{ match: { server: "My Notes (local)" }, retry: false }'
  const [line] = await errorsOf(t, `${servers}\npolicies: { overrides: [${override}] }`)
  assert.match(line ?? '', /; the server is called "My-Notes-local" here$/)
})

test('an unset variable is named in its place, without further errors there', async (t) => {
  assert.deepEqual(
    await errorsOf(
      t,
      'mcpServers:\n  a:\n    url: ${SEARCH_URL}\n    headers:\n      X-Key: "k-${KEY}"\n    colour: 1',
    ),
    [
      '3:10  mcpServers.a.url  environment variable SEARCH_URL is not set; set it, or write ${SEARCH_URL:-default}',
      '5:14  mcpServers.a.headers.X-Key  environment variable KEY is not set; set it, or write ${KEY:-default}',
      (await errorsOf(t, 'mcpServers:\n  a:\n    url: http://h\n\n\n    colour: 1'))[0],
    ],
  )
})

test('rules over several keys are checked once each key is right', async (t) => {
  assert.deepEqual(
    await errorsOf(
      t,
      `gateway:
  listen: 127.0.0.1:9000
  control: 0.0.0.0:9000
servers:
  a__b: { command: x }
  c_: { command: x }
  Search: { command: x }
  search: { command: x }
  f:
    url: http://h
    headers: { authorization: x }
    forwardHeaders: { x-token: Authorization }`,
    ),
    [
      '3:12  gateway.control  0.0.0.0 is not a loopback address: add "controlToken", or listen on 127.0.0.1',
      '3:12  gateway.control  expected another port than "listen", found 9000 for both',
      '5:3  servers.a__b  a server name may not contain the separator "__", or end with a part of it',
      '6:3  servers.c_  a server name may not contain the separator "__", or end with a part of it',
      '8:3  servers.search  differs from "Search" only by case, which people cannot tell apart',
      '12:32  servers.f.forwardHeaders.x-token  would be sent twice: "headers" sets it too',
    ],
  )
})

test('headers that are not for passing on are refused', async (t) => {
  const list = await errorsOf(
    t,
    'mcpServers: { a: { url: "http://h", forwardHeaders: [Authorization, Host, Mcp-Session-Id, Cookie, X-A, x-a] } }',
  )
  assert.match(
    list[0] ?? '',
    /forwardHeaders\[0\] {2}the agent's Authorization .* map it: \{ x-user-token: authorization \}$/,
  )
  assert.match(list[1] ?? '', /"host" belongs to one connection or to the protocol/)
  assert.match(list[2] ?? '', /"mcp-session-id" belongs/)
  assert.match(list[3] ?? '', /"cookie" holds credentials; pass it on by a map: \{ cookie: cookie \}/)
  assert.match(list[4] ?? '', /"x-a" would be sent twice/)
  const map = await errorsOf(
    t,
    'mcpServers: { a: { url: "http://h", forwardHeaders: { authorization: x-b, x-c: content-length, cookie: cookie } } }',
  )
  assert.equal(map.length, 2)
  assert.match(map[0] ?? '', /forwardHeaders\.authorization {2}the agent's Authorization/)
  assert.match(map[1] ?? '', /"content-length" belongs/)
})

test('headers that the gateway sets itself cannot be configured', async (t) => {
  assert.deepEqual(
    await errorsOf(
      t,
      'mcpServers: { a: { url: "http://h", headers: { Content-Length: "1", X-A: b, x-a: c, Host: d } } }',
    ),
    [
      '1:64  mcpServers.a.headers.Content-Length  is set by the gateway; it cannot be configured',
      '1:82  mcpServers.a.headers.x-a  the same header twice; case makes no difference',
    ],
  )
})

test('two blocks of servers under both names are an error', async (t) => {
  assert.deepEqual(await errorsOf(t, 'mcpServers: {}\nservers: {}'), [
    '2:1  servers  says the same as "mcpServers"; keep one',
  ])
})

test('a config that is no map names its type', async (t) => {
  assert.deepEqual(await errorsOf(t, '- a'), ['1:1  expected a map, found a list'])
})

test('a fault of the modern era that aims at a server behind HTTP+SSE, which is older, is an error', async (t) => {
  assert.deepEqual(
    await errorsOf(
      t,
      `mcpServers:
  old: { type: sse, url: "http://h/sse" }
chaos:
  faults:
    - { name: ttl, type: registry.bad_ttl, rate: 1, ttl: 1m, match: { server: old } }`,
    ),
    [
      '5:26  chaos.faults[0].type  registry.bad_ttl cannot work with old: lists of the legacy era have no ttlMs',
    ],
  )
})

test('no message shows the value of a variable, from any source', async (t) => {
  const text = `mcpServers: { a: { url: "http://127.0.0.1:1/mcp" } }
experiments: [{ name: e, arms: { control: default, treatment: "\${TOKEN}" } }]`
  const { lines } = await load(t, text, { TOKEN: 'a-token-that-nobody-may-read' })
  assert.deepEqual(lines, [
    'main.yaml:2:63  experiments[0].arms.treatment  there is no policy set "[redacted]"; there are default',
  ])
})

test('a name that is as long as a file is shown by its beginning', async (t) => {
  const [alias = ''] = await errorsOf(t, `*${'a'.repeat(100_000)}`)
  assert.match(alias, /^1:1 {2}\*aaa/)
  assert.equal(alias.length, '1:1  '.length + 2_000 + 1)
  const [key = ''] = await errorsOf(t, `mcpServers: { a: { url: "http://h/x", ${'k'.repeat(100_000)}: 1 } }`)
  assert.ok(key.length < 2_500, `${key.length} characters`)
})

test('a config with very many mistakes reports the first, and takes no time for the rest', async (t) => {
  const keys = Array.from({ length: 50_000 }, (_, n) => `a${n}: 1`)
  const unknown = await errorsOf(t, keys.join('\n'))
  assert.match(unknown[0] ?? '', /^1:1 {2}a0 {2}unknown key "a0"/)
  assert.equal(unknown.length, 100)
  assert.equal((await errorsOf(t, '? []\n'.repeat(50_000))).length, 5_000)
})

test('terminal control characters are escaped everywhere', async (t) => {
  assert.deepEqual(
    await errorsOf(t, 'gateway: { "a\\u2028b\\u001b[2J": 1 }').then(([line]) => line?.split('  ')[1]),
    'gateway["a\\u2028b\\u001b[2J"]',
  )
})

test('a wrong tag of a union is named with all allowed tags', async (t) => {
  const [error] = await errorsOf(
    t,
    `mcpServers: { a: { command: x } }
chaos:
  faults:
    - { name: slow, type: conn.latency, rate: 1, ttl: 1m, distribution: { kind: constant } }`,
  )
  assert.equal(
    error,
    '4:81  chaos.faults[0].distribution.kind  expected "fixed", "uniform", "normal", "lognormal", "pareto" or "empirical", found "constant"',
  )
})

test('a user in a URL that cannot be decoded is an error of the config, and no end of the start', async (t) => {
  const [line = ''] = await errorsOf(
    t,
    'mcpServers: { a: { url: "http://%E0%A4%A:s3cret@127.0.0.1:1/mcp" } }',
  )
  assert.match(
    line,
    /^1:\d+ {2}mcpServers\.a\.url {2}expected user and password in the URL with % only before/,
  )
  assert.doesNotMatch(line, /s3cret/)
})
