import assert from 'node:assert/strict'
import { test } from 'node:test'
import { redactArgs, redactUrls } from '../../src/config/secrets/redact-text.ts'
import { redact } from '../../src/config/secrets/redact.ts'
import { errorsOf, loadGood } from './files.ts'

test('no error shows what came out of a variable', async (t) => {
  const env = {
    LISTEN: 's3cret',
    COUNT: 's3cret',
    READY: 's3cret',
    WAIT: 's3cret',
    URL: 's3cret',
    NAME: 's3cret',
  }
  const errors = await errorsOf(
    t,
    `gateway: { listen: "\${LISTEN}", maxInFlight: "\${COUNT}", ready: "\${READY}", drain: "\${WAIT}" }
mcpServers:
  a: { url: "http\${URL}://h" }
  b: { type: "\${NAME}", command: x }
policies: { overrides: [{ match: { tool: "\${NAME}|" } }] }`,
    env,
  )
  assert.equal(errors.length, 7)
  assert.doesNotMatch(errors.join('\n'), /s3cret/)
  assert.match(
    errors[0] ?? '',
    /gateway\.listen {2}expected host:port, such as 127\.0\.0\.1:8080, found the value of \$\{LISTEN\}/,
  )
})

test('no error shows a header, a variable of a process, a token, an argument or a URL with credentials', async (t) => {
  for (const text of [
    'gateway: { controlToken: s3cret }',
    'gateway: { controlToken: [s3cret] }',
    'mcpServers: { a: { url: "http://h", headers: { X-Key: "s3cret\\n" } } }',
    'mcpServers: { a: { url: "http://h", headers: { Bearer s3cret } } }',
    'mcpServers: { a: { url: "http://h", headers: "X-Key: s3cret" } }',
    'mcpServers: { a: { url: "http://h", headers: [s3cret] } }',
    'mcpServers: { a: { command: x, env: "KEY=s3cret" } }',
    'mcpServers: { a: { command: x, env: [KEY=s3cret] } }',
    'mcpServers: { a: { command: x, env: { KEY: [s3cret] } } }',
    'mcpServers: { a: { command: x, env: { KEY: 5, OTHER: "s3cret\\0" } } }',
    'mcpServers: { a: { command: x, args: --token=s3cret } }',
    'mcpServers: { a: { command: x, args: ["s3cret\\0"] } }',
    'mcpServers: { a: "https://user:s3cret@h" }',
    'mcpServers: { a: { url: "user:s3cret@h" } }',
    'mcpServers: { a: { urls: ["https//h?key=s3cret"] } }',
    'mcpServers: { a: { command: x, token: s3cret } }',
    'gateway: { controlToken: "s3cret',
    'gateway: { controlToken: "abc" s3cret }',
    'gateway: { controlToken: "\\s3cret" }',
    'gateway: { controlToken: "${s3cret with spaces}" }',
    'gateway: { controlToken: "${NOPE:-s3cret}" }',
    's3cret',
  ]) {
    assert.doesNotMatch((await errorsOf(t, text)).join('\n'), /s3cret/, text)
  }
})

test('a config for people holds no secret', async (t) => {
  const { config } = await loadGood(
    t,
    `gateway: { controlToken: 0123456789-s3cret, environment: "\${WHERE}" }
mcpServers:
  a:
    command: npx
    args: [--api-key, s3cret, --token=s3cret, -v, "--db=postgres://u:s3cret@h/db", -H, "Authorization: Bearer s3cret", "\${ARG}", KEYS=1]
    env: { KEY: s3cret }
    cwd: \${DIR}/x
  b:
    urls: ["https://user:s3cret@h/mcp?key=s3cret&x", "http://plain/mcp"]
    headers: { X-Key: s3cret }
    forwardHeaders: { x-user-token: authorization }
  c: { url: "\${URL}" }`,
    { WHERE: 's3cret', ARG: 's3cret', DIR: '/s3cret', URL: 'http://h/s3cret/mcp' },
  )
  const shown = redact(config) as typeof config
  assert.doesNotMatch(JSON.stringify(shown), /s3cret/)
  assert.match(JSON.stringify(config), /s3cret/)
  const { a, b, c } = shown.mcpServers
  assert.ok(a?.type === 'stdio' && b?.type === 'http' && c?.type === 'http')
  assert.deepEqual(a.args, [
    '--api-key',
    '[redacted]',
    '--token=[redacted]',
    '-v',
    '--db=postgres://[redacted]@h/db',
    '-H',
    '[redacted]',
    '[redacted]',
    'KEYS=1',
  ])
  assert.deepEqual([a.command, a.env, a.cwd], ['npx', { KEY: '[redacted]' }, '[redacted]'])
  assert.deepEqual(b.urls, ['https://[redacted]@h/mcp?key=[redacted]&[redacted]', 'http://plain/mcp'])
  assert.deepEqual(
    [b.headers, b.forwardHeaders],
    [{ 'X-Key': '[redacted]' }, { 'x-user-token': 'authorization' }],
  )
  assert.deepEqual(c.urls, ['[redacted]'])
  assert.equal(shown.gateway.listen, '127.0.0.1:8080')
  assert.equal(shown.gateway.maxInFlight, 2_000)
})

test('values of variables stay secret in a rebuilt config', async (t) => {
  const text = 'gateway: { environment: "${WHERE}" }\nmcpServers: { a: { command: "${CMD}" } }'
  const { config } = await loadGood(t, text, { CMD: '/opt/s3cret', WHERE: 's3cret' })
  const b = await loadGood(t, 'mcpServers: { b: { command: x } }')
  const mcpServers = { ...config.mcpServers, ...b.config.mcpServers }
  const more = { ...config, gateway: { ...config.gateway, drain: 5 }, mcpServers }
  assert.doesNotMatch(JSON.stringify(redact(more)), /s3cret/)
})

test('secrets in a command line are recognised by option, URL or shape', () => {
  const hidden: [string[], string[]][] = [
    [
      ['--password', 'x'],
      ['--password', '[redacted]'],
    ],
    [['--github-token=x'], ['--github-token=[redacted]']],
    [
      ['-e', 'API_KEY=x'],
      ['-e', 'API_KEY=[redacted]'],
    ],
    [
      ['-c', 'curl -H "Authorization: Bearer x" h'],
      ['-c', 'curl -H "Authorization: [redacted]'],
    ],
    [['ghp_abcdefghijklmnop'], ['[redacted]']],
    [['use sk-abcdefghijkl now'], ['use [redacted] now']],
    [['https://h/?token=x#y'], ['https://h/?token=[redacted]']],
  ]
  for (const [args, shown] of hidden) assert.deepEqual(redactArgs(args), shown, args.join(' '))
})

test('a command line without secrets is shown unchanged', () => {
  const args = [
    '-y',
    '@scope/server',
    '--port',
    '8080',
    '--auth',
    '--verbose',
    '/data',
    'https://h/path',
    'a=b',
    'ask-me',
  ]
  assert.deepEqual(redactArgs(args), args)
})

test('every URL in a text loses its credentials', () => {
  assert.equal(
    redactUrls('see http://a:b@h:1/x?y=z&q and ws://k'),
    'see http://[redacted]@h:1/x?y=[redacted]&[redacted] and ws://k',
  )
  assert.equal(redactUrls('http://a@b@h/x'), 'http://[redacted]@h/x')
})
