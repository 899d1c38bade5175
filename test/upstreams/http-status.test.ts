import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ReplyHeaders, answered, readReply, retryAfter } from '../../src/upstreams/http/http-status.ts'

const WALL = Date.UTC(2026, 0, 1)

const headers = (named: Readonly<Record<string, string>> = {}) =>
  new ReplyHeaders(
    Object.entries(named)
      .flat()
      .map((text) => Buffer.from(text, 'latin1')),
  )

/** Interprets a reply to request 1. */
function read(
  status: number,
  text: string,
  {
    hasSession = false,
    id = 1,
    named = {},
  }: { hasSession?: boolean; id?: string | number; named?: Record<string, string> } = {},
) {
  const reading = readReply(id, status, headers(named), text, { hasSession, wallMs: WALL })
  if (reading.kind === 'suspected_loss') return { suspected: reading.proof }
  if (reading.kind === 'answered')
    return { text: reading.result.text, status: reading.result.status, value: reading.result.value }
  return { error: reading.kind === 'failed' ? reading.error : undefined }
}

const result = (id: string) => `{ "jsonrpc":"2.0","id":${id},"result":{"n":1.0} }`

test('an answer to our request passes as it is', () => {
  for (const [id, text] of [
    [1, result('1')],
    ['a', result('"a"')],
    [0, result('0')],
    ['', result('""')],
  ] as const) {
    const { text: passed, status, value } = read(200, text, { id })
    assert.deepEqual([passed, status, value], [text, 200, JSON.parse(text)])
  }
})

test('an id that comes back as text is still known, and is given back as a number', () => {
  assert.deepEqual(read(200, result('"1"')), {
    text: result('1'),
    status: 200,
    value: { jsonrpc: '2.0', id: 1, result: { n: 1 } },
  })
})

test('an answer to another request is not taken for the answer', () => {
  for (const id of ['2', '"2"', '"01"', '"1.0"', '0'])
    assert.equal(read(200, result(id)).error?.reason, 'bad_reply', id)
})

test('a JSON-RPC error passes with its HTTP status, under our id when it has none', () => {
  const error = '"error":{"code":-32602,"message":"x"}'
  for (const status of [400, 404, 500]) {
    assert.equal(read(status, `{"jsonrpc":"2.0","id":1,${error}}`).status, status)
    assert.equal(
      read(status, `{"jsonrpc":"2.0","id":null,${error}}`).text,
      `{"jsonrpc":"2.0","id":1,${error}}`,
    )
    assert.equal(
      read(status, `{"jsonrpc":"2.0",${error}}`, { id: 'a' }).text,
      `{"id":"a","jsonrpc":"2.0",${error}}`,
    )
    assert.equal(read(status, `{"jsonrpc":"2.0",${error}}`).value?.id, 1)
  }
  assert.equal(read(200, `{"jsonrpc":"2.0","id":null,${error}}`).error?.reason, 'bad_reply')
})

test('a 404 may mean a lost session when there was one, and so may other replies, which prove less', () => {
  const complaint = (message: string) =>
    `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"${message}"}}`
  const answer = (code: number, message: string) =>
    `{"jsonrpc":"2.0","id":1,"error":{"code":${code},"message":"${message}"}}`
  for (const [proof, status, text] of [
    ['implies', 404, ''],
    ['implies', 410, '<h1>Gone</h1>'],
    ['says', 404, complaint('Session not found')],
    ['says', 410, answer(-32001, 'Session terminated')],
    ['says', 400, complaint('Invalid session ID')],
    ['says', 400, complaint('Bad Request: Server not initialized')],
    ['none', 200, answer(-32602, 'Received request before initialization was complete')],
    // Only the server knows whether the text means our session.
    ['says', 400, complaint('booking session 42 is full')],
    ['none', 400, ''],
    ['none', 400, 'no such session'],
    ['none', 400, complaint('Bad input')],
    ['none', 404, answer(-32600, 'Invalid Request')],
    ...[200, 202, 204, 302, 405, 421, 422].map((code) => ['none', code, ''] as const),
    ['none', 200, result('2')],
    ['none', 200, answer(-32001, 'x')],
    ['none', 200, answer(-32600, 'x')],
    ['none', 200, answer(-32603, 'unknown session')],
    ...[401, 403, 409, 500, 503].flatMap((code) =>
      ['', answer(-32602, 'x')].map((said) => ['none', code, said] as const),
    ),
  ] as const) {
    assert.deepEqual(read(status, text, { hasSession: true }), { suspected: proof }, `${status} ${text}`)
    assert.equal('suspected' in read(status, text), false)
  }
  // An answer to our own request without a word about sessions proves that the server has read it.
  for (const status of [200, 400, 404])
    assert.equal(read(status, answer(-32602, 'no such order'), { hasSession: true }).status, status)
  assert.equal(read(400, answer(-32022, 'version'), { hasSession: true }).status, 400)
  assert.equal(read(200, result('1'), { hasSession: true }).status, 200)
  assert.equal(read(429, '', { hasSession: true }).error?.reason, 'upstream_rate_limited')
  assert.equal(read(404, '<h1>Not Found</h1>').error?.reason, 'upstream_refused')
})

test('a 404 at a URL without a path is told with the usual path', () => {
  const messageOf = (isWithoutPath: boolean, status = 404) => {
    const context = { hasSession: false, wallMs: 0, isWithoutPath }
    const reading = readReply(1, status, headers(), 'nothing here', context)
    return reading.kind === 'failed' ? reading.error.message : undefined
  }
  const refused = 'the server refused the request (HTTP 404: "nothing here")'
  assert.equal(messageOf(false), refused)
  assert.equal(messageOf(true), `${refused}: the url of its entry has no path, and most servers have /mcp`)
  assert.doesNotMatch(String(messageOf(true, 410)), /no path/)
})

test('replies without an answer are classified by status', () => {
  for (const [status, reason] of [
    [200, 'bad_reply'],
    [202, 'bad_reply'],
    [204, 'bad_reply'],
    [302, 'upstream_refused'],
    [400, 'upstream_refused'],
    [401, 'upstream_unauthorized'],
    [403, 'upstream_forbidden'],
    [405, 'upstream_refused'],
    [429, 'upstream_rate_limited'],
    [500, 'upstream_status'],
    [503, 'upstream_status'],
  ] as const) {
    for (const text of ['', '<html>', '{}', '[]', '{"jsonrpc":"2.0","id":1,"method":"m"}']) {
      const { error } = read(status, text)
      assert.equal(error?.reason, reason, `${status} ${text}`)
      assert.equal(error?.sent, true)
    }
  }
})

test('credentials and limits are told even when the reply is JSON-RPC', () => {
  const text = '{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"x"}}'
  assert.equal(read(401, text).error?.reason, 'upstream_unauthorized')
  assert.equal(read(429, text).error?.reason, 'upstream_rate_limited')
})

test('the error names the type that came instead of an answer', () => {
  const page = read(200, '<html>', { named: { 'content-type': 'Text/HTML' } })
  assert.equal(page.error?.message, 'the reply is not a JSON-RPC response (HTTP 200, text/html)')
  assert.equal(
    read(200, '').error?.message,
    'the reply is not a JSON-RPC response (HTTP 200, something without a content type)',
  )
  const named = { 'content-type': 'application/json', 'content-encoding': 'gzip' }
  assert.equal(
    read(200, '\u001f\ufffd', { named }).error?.message,
    'the reply is not a JSON-RPC response (HTTP 200, application/json, compressed with gzip)',
  )
})

test('a server may say when to come back, in seconds or as a date', () => {
  for (const [value, ms] of [
    ['0', 0],
    ['7', 7_000],
    ['86400', 86_400_000],
    ['Thu, 01 Jan 2026 00:01:00 GMT', 60_000],
    ['86401', undefined],
    ['Wed, 31 Dec 2025 23:59:00 GMT', undefined],
    ['soon', undefined],
    ['-1', undefined],
    ['', undefined],
  ] as const) {
    assert.equal(retryAfter(headers({ 'Retry-After': value }), WALL), ms, value)
    assert.equal(read(503, '', { named: { 'retry-after': value } }).error?.retryAfterMs, ms, value)
    assert.equal(read(429, '', { named: { 'retry-after': value } }).error?.retryAfterMs, ms, value)
  }
  assert.equal(retryAfter(headers(), WALL), undefined)
})

test('an answer gets a verdict', () => {
  const verdictOf = (rest: string) => {
    const text = `{"jsonrpc":"2.0","id":1,${rest}}`
    const outcome = answered(1, { text, value: JSON.parse(text) as Record<string, unknown> }, 200)
    return outcome.kind === 'answered' && outcome.verdict
  }
  assert.equal(verdictOf('"result":{}'), 'unchecked')
  assert.equal(verdictOf('"result":{"isError":true}'), 'tool_error')
  assert.equal(verdictOf('"error":{"code":1,"message":"x"}'), 'rpc_error')
})

test('a result is an answer whatever its status: the call has run', () => {
  for (const status of [201, 302, 400, 401, 403, 404, 429, 500, 503]) {
    const reading = readReply(1, status, headers(), '{"jsonrpc":"2.0","id":1,"result":{}}', {
      hasSession: true,
      wallMs: 0,
    })
    assert.ok(reading.kind === 'answered' && reading.verdict === 'unchecked', String(status))
  }
})
