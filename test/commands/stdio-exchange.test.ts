import assert from 'node:assert/strict'
import { test } from 'node:test'
import { PostedMessage } from '../../src/commands/run/stdio.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { ReplyHeaders } from '../../src/upstreams/http/http-status.ts'

interface Answer {
  readonly id?: unknown
  readonly error?: { readonly message: string }
}

const none = new ReplyHeaders([])

function start(...ids: (string | number)[]) {
  const lines: string[] = []
  const write = (line: string) => void lines.push(line)
  const exchange = new PostedMessage(new Set(ids), { write, onSession: () => Promise.resolve() })
  return { exchange, lines, said: () => lines.map((line) => JSON.parse(line) as Answer) }
}

const event = (data: string) => ({ type: 'message', data, id: undefined, retryMs: undefined })
const result = (id: unknown) => JSON.stringify({ jsonrpc: '2.0', id, result: {} })

test('a reply is handed on as it is, on one line', async () => {
  const { exchange, lines } = start(1)
  exchange.body(200, none, '{"jsonrpc":"2.0",\n "id":1,\r\n "result":{"text":"a\\nb"}}')
  await exchange.over
  assert.deepEqual(lines, ['{"jsonrpc":"2.0",  "id":1,  "result":{"text":"a\\nb"}}'])
})

test('messages of a stream are handed on as they come, and an answer that is missing becomes an error', async () => {
  const { exchange, said } = start(1, 'two')
  exchange.opened()
  void exchange.event(event('{"jsonrpc":"2.0","method":"notifications/progress"}'))
  void exchange.event(event(''))
  void exchange.event(event(result(1)))
  assert.equal(said().length, 2)
  exchange.ended()
  await exchange.over
  const [, , last] = said()
  assert.equal(last?.id, 'two')
  assert.match(String(last?.error?.message), /stream ended without an answer/)
})

test('a batch is answered as a whole', async () => {
  const { exchange, lines } = start(1, 2)
  exchange.body(200, none, `[${result(1)},${result(2)}]`)
  await exchange.over
  assert.deepEqual(lines, [`[${result(1)},${result(2)}]`])
})

test('a refusal that names no request answers all of those that were sent', async () => {
  const { exchange, said } = start(1, 2)
  const error = { code: -32001, message: 'Session not found' }
  exchange.body(404, none, JSON.stringify({ jsonrpc: '2.0', id: null, error }))
  await exchange.over
  assert.deepEqual(
    said().map(({ id, error }) => [id, error?.message]),
    [
      [1, 'Session not found'],
      [2, 'Session not found'],
    ],
  )
})

test('a status, a text that is no JSON, and a connection that breaks become errors', async () => {
  const page = start(1)
  page.exchange.body(503, none, '<html>down</html>')
  assert.match(String(page.said()[0]?.error?.message), /HTTP 503 .*<html>down/)

  const empty = start(1)
  empty.exchange.body(202, none, '')
  assert.match(String(empty.said()[0]?.error?.message), /HTTP 202 without an answer/)

  const garbled = start(1)
  void garbled.exchange.event(event('{"jsonrpc":'))
  garbled.exchange.ended()
  assert.match(String(garbled.said()[0]?.error?.message), /not JSON/)

  const broken = start(1)
  broken.exchange.failed(gatewayError('upstream_disconnected', 'the connection broke'))
  assert.match(String(broken.said()[0]?.error?.message), /connection broke/)
})

test('a message without a request gets an empty answer', async () => {
  const { exchange, lines } = start()
  exchange.body(202, none, '')
  await exchange.over
  assert.deepEqual(lines, [])
})

test('a session is open before the client hears of it', async () => {
  const lines: string[] = []
  let opened: () => void = () => undefined
  const exchange = new PostedMessage(new Set([1]), {
    write: (line) => void lines.push(line),
    onSession: (id, version) => {
      assert.deepEqual([id, version], ['s-1', '2025-11-25'])
      return new Promise((resolve) => (opened = resolve))
    },
  })
  const headers = new ReplyHeaders([Buffer.from('Mcp-Session-Id'), Buffer.from('s-1')])
  exchange.body(200, headers, '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}')
  assert.deepEqual(lines, [])
  opened()
  await exchange.over
  assert.equal(lines.length, 1)
})
