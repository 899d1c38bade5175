import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  isSecretName,
  looksLikeKey,
  redactArgs,
  redactShapes,
  redactUrls,
} from '../../src/config/secrets/redact-text.ts'

const X = '[redacted]'

/** Command lines and their redacted form. */
const hidden: readonly (readonly [readonly string[], readonly string[]])[] = [
  [
    ['--key', 'x'],
    ['--key', X],
  ],
  [['--api-key=x'], [`--api-key=${X}`]],
  [
    ['--apiKey', 'x'],
    ['--apiKey', X],
  ],
  [
    ['--token', 'x', 'y'],
    ['--token', X, 'y'],
  ],
  [
    ['-token', 'x'],
    ['-token', X],
  ],
  [
    ['-p', 'hunter2'],
    ['-p', X],
  ],
  [['-p=hunter2'], [`-p${X}`]],
  [['-phunter2'], [`-p${X}`]],
  [
    ['-u', 'me:hunter2'],
    ['-u', `me:${X}`],
  ],
  [
    ['--user', 'me:hunter2'],
    ['--user', `me:${X}`],
  ],
  [['PASS=x'], [`PASS=${X}`]],
  [['DB_PASS=x y z'], [`DB_PASS=${X}`]],
  [['KEY=x'], [`KEY=${X}`]],
  [['PGPASSWORD=x'], [`PGPASSWORD=${X}`]],
  [['API_KEYS=x,y'], [`API_KEYS=${X}`]],
  [
    ['--header', 'X-Api-Key: x'],
    ['--header', X],
  ],
  [['X-Api-Key: x y'], [`X-Api-Key: ${X}`]],
  [['{"clientSecret":"x","b":1}'], [`{"clientSecret":${X}`]],
  [
    ['-c', 'PASS=x exec run --token y --port 1'],
    ['-c', `PASS=${X}`],
  ],
  [
    ['-c', 'exec PASS=x run --token y --port 1'],
    ['-c', `exec PASS=${X} run --token ${X} --port 1`],
  ],
  [
    ['-c', `run --password 'x'`],
    ['-c', `run --password ${X}`],
  ],
  [['Server=h;Password=x;Db=d'], [`Server=h;Password=${X};Db=d`]],
  [['https://h/s/AbC12dEf34GhI56jKl/mcp'], [`https://h/s/${X}/mcp`]],
  [['--url=https://h/0b0e5a9c-1f65-4a7e-9c0e-2a6d0a7f1b11/sse'], [`--url=https://h/${X}/sse`]],
  [['a1b2c3d4e5f6a7b8c9d0'], [X]],
  [['postgres://app:hunter2@${HOST}/db'], [`postgres://${X}@\${HOST}/db`]],
  [['--api-key=${PREFIX}-x'], [`--api-key=${X}`]],
  [['https://a1b2c3d4e5f6a7b8c9d0:${NOTHING}@h/'], [`https://${X}@h/`]],
  [
    ['--token', '${TOKEN:-x}'],
    ['--token', X],
  ],
  [
    ['--token', '$${TOKEN}'],
    ['--token', X],
  ],
  [['ghp_abcdefghijklmnop'], [X]],
]

/** Command lines without secrets. */
const shown: readonly (readonly string[])[] = [
  ['npx', '-y', '@modelcontextprotocol/server-filesystem@2026.8.31', '/data/keys'],
  ['docker', 'run', '-p', '8080:80', '-i', '--rm', 'ghcr.io/github/github-mcp-server:v0.2.1'],
  ['uvx', '-p', '3.12', 'mcp-server-git', '--repository', '/home/me/monkey'],
  ['npx', '-p', '@scope/package', 'run'],
  ['mkdir', '-p', './folder'],
  ['--max-tokens', '500', '--key-file', '/run/key', '--token-url', 'https://h/token', '--auth-type', 'basic'],
  ['--author', 'somebody', '--keyboard', 'de', '--primary-key', 'id', '--passive', 'yes', '--bypass', 'no'],
  ['--auth', '--verbose'],
  ['KEYS=1', 'a=b', 'NODE_ENV=production', 'C:\\dir\\x', 'k8s-mcp-server-v2-beta1', 'ModelContextServer2'],
  ['-c', 'exec 3<&0; node server.js <&3 & wait'],
  ['https://example.com/api/v1/mcp', 'http://127.0.0.1:3001/mcp'],
  [
    '--api-key',
    '${KEY}',
    '--token=${env:TOKEN}',
    '-u',
    'me:${PASSWORD}',
    '-H',
    'Authorization: Bearer ${TOKEN}',
  ],
  ['postgres://app:${PASSWORD}@${HOST}/db', 'https://${TOKEN}@h/mcp?key=${A}${B}'],
]

test('secrets in command lines are recognised by names, URLs and shapes', () => {
  for (const [args, expected] of hidden) assert.deepEqual(redactArgs(args), expected, args.join(' '))
})

test('harmless words stay, so that a command line can be recognized', () => {
  for (const args of shown) assert.deepEqual(redactArgs(args), args)
})

test('names are read part by part', () => {
  for (const name of [
    'x-api-key',
    'AWS_SECRET_ACCESS_KEY',
    'authToken',
    'sessionCookie',
    'db.password',
    'PAT',
  ])
    assert.equal(isSecretName(name), true, name)
  for (const name of [
    'monkey',
    'turkey',
    'author',
    'compass',
    'path',
    'tokens',
    'token_count',
    'public-key',
    '',
  ])
    assert.equal(isSecretName(name), false, name)
})

test('a key is recognised by a shape that no word has', () => {
  for (const key of [
    '0b0e5a9c-1f65-4a7e-9c0e-2a6d0a7f1b11',
    'Zm9v-YmFy_MTIz0NDU2Nzg5',
    'deadbeef00c0ffee1234',
  ])
    assert.equal(looksLikeKey(key), true, key)
  for (const word of [
    'mcp',
    'streamable-http-endpoint',
    '2026-08-31',
    'internationalization',
    '1234567890123456',
  ])
    assert.equal(looksLikeKey(word), false, word)
})

test('text of a server loses secrets by their shape, in linear time', () => {
  assert.equal(
    redactShapes('cannot reach https://u:p@h/x?k=v with ghp_abcdefghijklmnop today'),
    `cannot reach https://${X}@h/x?k=${X} with ${X} today`,
  )
  for (const piece of ['a', 'a.', 'sk-', 'http:/', '@', 'a-b_']) {
    const long = piece.repeat(50_000)
    assert.ok(redactShapes(long).length > 0)
    assert.ok(redactUrls(`http://${long}`).length > 0)
  }
})
