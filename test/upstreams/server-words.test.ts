import assert from 'node:assert/strict'
import { test } from 'node:test'
import { httpServer, stdioServer } from '../../src/config/schema/server-schema.ts'
import { ReplyHeaders, readReply } from '../../src/upstreams/http/http-status.ts'
import { concealing, excerptOf, excerptOfBody } from '../../src/upstreams/server-words.ts'

const nothing = (text: string) => text

function told(status: number, body: string, conceal = nothing) {
  const context = { hasSession: false, wallMs: 0, conceal }
  const reading = readReply(1, status, new ReplyHeaders([]), body, context)
  return reading.kind === 'failed' ? [reading.error.reason, reading.error.message] : []
}

test('a refusal is told in the words of the server', () => {
  assert.deepEqual(told(403, 'Access is only allowed at localhost:20105'), [
    'upstream_forbidden',
    'the server forbids the request (HTTP 403: "Access is only allowed at localhost:20105")',
  ])
  assert.deepEqual(told(401, '{"error":"invalid_token","error_description":"expired"}'), [
    'upstream_unauthorized',
    'the server refused our credentials (HTTP 401: "expired")',
  ])
  assert.deepEqual(told(404, '<html><head><title>404 Not Found</title></head><body>nginx'), [
    'upstream_refused',
    'the server refused the request (HTTP 404: "404 Not Found")',
  ])
  assert.deepEqual(told(403, ''), ['upstream_forbidden', 'the server forbids the request (HTTP 403)'])
})

test('the message is found where JSON bodies of errors have it', () => {
  for (const body of [
    '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no such host"}}',
    '{"error":"no such host"}',
    '{"message":"no such host"}',
    '{"title":"x","detail":"no such host"}',
    '  no such\n\thost  ',
  ])
    assert.equal(excerptOfBody(body, nothing), '"no such host"', body)
})

test('words are one printable line of bounded length', () => {
  assert.equal(excerptOf('\u001b[31mred\u001b[0m\nand more', nothing), '"\\u001b[31mred\\u001b[0m and more"')
  const long = excerptOf('x'.repeat(1_000_000), nothing) ?? ''
  assert.ok(long.length <= 303, `${long.length} characters`)
})

test('words of a program never repeat values of its config', () => {
  const conceal = concealing(
    stdioServer.parse({
      command: 'x',
      args: ['--token', 'hunter2-of-args', '--password=pw-of-args', '--port', '8080'],
      env: {
        FOO_KEY: 'k3y',
        DATABASE: 'postgres://me:passw0rd@db/x',
        API_KEYS: 'one two-secret',
        LEVEL: 'info',
      },
    }),
  )
  const said = conceal(
    'FATAL: FOO_KEY=k3y refused on 8080; hunter2-of-args pw-of-args two-secret postgres://me:passw0rd@db/x info',
  )
  for (const secret of ['k3y', 'hunter2', 'pw-of', 'two-secret', 'passw0rd'])
    assert.ok(!said.includes(secret), said)
  assert.match(said, /^FATAL: FOO_KEY=\[redacted\] refused on 8080/)
})

test('words of a server never repeat values of its config', () => {
  const conceal = concealing(
    httpServer.parse({
      url: 'http://me:basic%20pass@host/mcp?apikey=query-secret',
      headers: { Authorization: 'Bearer s3cret-token', 'X-Key': 'abc' },
    }),
  )
  const said = conceal('bad token s3cret-token, key abc, basic pass, query-secret')
  for (const secret of ['s3cret', 'abc', 'basic pass', 'query-secret'])
    assert.ok(!said.includes(secret), said)
})

test('a secret is known in the spellings of URLs, JSON and HTML', () => {
  const conceal = concealing(
    httpServer.parse({
      url: 'http://host/mcp?s=QpartA%2FQpartB%3D%3d&t=%7Eplain',
      headers: { 'X-Key': `Hpart"A&/Hpart+'B` },
    }),
  )
  for (const said of [
    'Cannot POST /mcp?s=QpartA%2FQpartB%3D%3d',
    'no token QpartA/QpartB==',
    'v=Hpart%22A%26%2FHpart%2B%27B',
    "v=Hpart%22A%26%2fHpart%2b'B",
    JSON.stringify({ got: `Hpart"A&/Hpart+'B` }),
    'bad Hpart&quot;A&amp;/Hpart+&#39;B',
    `bad Hpart"A&amp;/Hpart+'B`,
  ])
    assert.doesNotMatch(conceal(said), /part/, said)
})

test('a secret is known in base64 and hexadecimal digits', () => {
  const headers = { 'X-Key': 's3cret-key~?', Authorization: 'Bearer Qm7x/tok+en8dFg==' }
  const conceal = concealing(httpServer.parse({ url: 'http://host/mcp', headers }))
  for (const secret of ['s3cret-key~?', 'Qm7x/tok+en8dFg=='])
    for (const encoding of ['base64', 'base64url', 'hex'] as const) {
      const within = ['', 'a', 'ab', 'abc'].map((before) => `${before}${secret}, and more`)
      for (const text of within) assert.match(conceal(Buffer.from(text).toString(encoding)), /\[redacted\]/)
      const said = Buffer.from(secret).toString(encoding)
      for (const written of encoding === 'hex' ? [said, said.toUpperCase()] : [said])
        assert.match(conceal(`got ${written}.`), /^got \[redacted\]=?=?\.$/)
    }
  assert.equal(conceal('no token Qm7x/tok+en8dFg== here'), 'no token [redacted] here')
})

test('a password is known without the URL or the header in which the config has it', () => {
  const program = concealing(
    stdioServer.parse({ command: 'x', env: { DATABASE_URL: 'postgres://postgres:p%40ss@db/x' } }),
  )
  assert.equal(
    program('FATAL: postgres refuses p@ss (p%40ss)'),
    'FATAL: postgres refuses [redacted] ([redacted])',
  )
  const basic = { Authorization: `Basic ${Buffer.from('me:hunter2:x').toString('base64')}` }
  const server = concealing(httpServer.parse({ url: 'http://host/mcp', headers: basic }))
  assert.equal(server('no user me with hunter2:x'), 'no user me with [redacted]')
})

test('a secret is taken out of a title and of a content type, however long they are', () => {
  const conceal = concealing(
    httpServer.parse({ url: 'http://host/mcp', headers: { 'X-Key': 'secret-key-of-it' } }),
  )
  const page = `<title>${' '.repeat(990)}secret-key-of-it</title>`
  assert.equal(excerptOfBody(page, conceal), '"[redacted]"')
  const headers = new ReplyHeaders(
    ['content-type', `text/${'x'.repeat(50)}secret-key-of-it`].map((text) => Buffer.from(text)),
  )
  const reading = readReply(1, 200, headers, 'x', { hasSession: false, wallMs: 0, conceal })
  assert.ok(reading.kind === 'failed')
  assert.doesNotMatch(reading.error.message, /secret/)
})

test('a long text loses the word at its cut', () => {
  const conceal = concealing(stdioServer.parse({ command: 'x', env: { K: 'secret-that-is-cut' } }))
  for (const blanks of [8 * 1024 - 10, 8 * 1024 - 30])
    assert.doesNotMatch(excerptOf(`words${' '.repeat(blanks)}secret-that-is-cut`, conceal) ?? '', /secret-/)
  assert.equal(excerptOf(`words${' '.repeat(9_000)}more`, conceal), '"words"')
  assert.match(excerptOf('x'.repeat(9_000), conceal) ?? '', /^"x{290}/)
})

test('a secret is taken out before the words are cut', () => {
  const conceal = concealing(stdioServer.parse({ command: 'x', env: { K: 'secret-that-is-cut' } }))
  const said = excerptOf(`${'x'.repeat(290)} secret-that-is-cut`, conceal) ?? ''
  assert.ok(!said.includes('secret-'), said)
})

test('each line of a multi-line value is a secret, whatever its name: programs write line by line', () => {
  const key = '-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\r\nkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n'
  const conceal = concealing(stdioServer.parse({ command: 'x', env: { CERT_DATA: key } }))
  assert.equal(conceal('it was kqhkiG9w0BAQEF'), 'it was [redacted]')
  assert.equal(conceal('-----END PRIVATE KEY-----'), '[redacted]')
})
