import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, before, describe, test } from 'node:test'
import { cleanUp, type Json } from '../support/gateway.ts'
import { Asker, manyAgents, manyTokens, opened, type Scene } from './scene.ts'
import { forms, malformedOf } from './malformed-cases.ts'

/** Largest answer, in bytes. */
const MOST_BYTES = 8_192

let scene: Scene
before(async () => {
  scene = await opened({}, { tokens: manyTokens })
})
after(cleanUp)

let sent = 0
const nextToken = () => manyAgents[sent++ % manyAgents.length]!.token

interface Sent {
  readonly path?: string
  readonly method?: string
  readonly headers?: Readonly<Record<string, string | readonly string[]>>
  readonly body?: string | Buffer
}

interface Got {
  readonly status: number
  readonly text: string
}

/** Sends a request to the control MCP server as given, with headers that a client sends. */
const send = ({ path = '/mcp', method = 'POST', headers = {}, body }: Sent): Promise<Got> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(scene.url)
    const all = {
      authorization: `Bearer ${nextToken()}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headers,
    }
    const given = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== ''))
    const sending = request({ hostname, port, path, method, headers: given, agent: false }, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString() }),
      )
    })
    sending.once('error', reject)
    sending.end(body)
  })

const call = (name: string, given: unknown): string =>
  JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: given } })

const ping = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' })

/** Returns the message of a reply, from JSON or from an event. */
const messageOf = (text: string): Json => JSON.parse(/^data: (.*)$/m.exec(text)?.[1] ?? text) as Json

interface ToolError {
  readonly code: string
  readonly message: string
  readonly began: unknown
  readonly repeat: string
}

/** Asserts that a result is an error that an agent can read. */
function isReadable(what: string, { isError, content, structuredContent }: Json): void {
  assert.equal(isError, true, `${what}: not an error`)
  assert.equal(structuredContent, undefined, what)
  const [{ text = '' } = {}] = content as { text?: string }[]
  const { code, message, began, repeat } = JSON.parse(text) as ToolError
  assert.match(code, /^[a-z_]+$/, what)
  assert.notEqual(code, 'internal', what)
  assert.notEqual(message, '', what)
  assert.equal(began, false, what)
  assert.ok(['never', 'same', 'later'].includes(repeat), what)
}

const isServing = async () => {
  const asker = await Asker.open(scene.url, nextToken())
  const told = await asker.call('get_status')
  assert.equal(told.error, undefined, told.text)
  await asker.client.close()
}

/** Lines of the log at the level of errors: an internal error is one. */
const errorsLogged = () => scene.gateway.log.filter(({ level }) => Number(level) >= 50)

describe('malformed calls of the control MCP server', () => {
  for (const [tool, form] of Object.entries(forms)) {
    const cases = malformedOf(form)
    test(`${tool} refuses ${cases.length} malformed calls of a legacy client, each with a readable error`, async () => {
      assert.ok(cases.length >= 20)
      for (const { what, given } of cases) {
        const { status, text } = await send({ body: call(tool, given) })
        assert.ok(status < 500 && status !== 429, `${what}: HTTP ${status} ${text.slice(0, 300)}`)
        assert.ok(Buffer.byteLength(text) <= MOST_BYTES, `${what}: ${Buffer.byteLength(text)} bytes`)
        assert.doesNotMatch(text, /internal/i, what)
        const { error, result } = messageOf(text) as { error?: { code: number }; result?: Json }
        if (error === undefined) isReadable(what, result!)
        else assert.notEqual(error.code, -32_603, `${what}: ${text.slice(0, 300)}`)
      }
      await isServing()
      assert.deepEqual(errorsLogged(), [])
    })

    test(`${tool} refuses malformed calls of a modern client, each with a readable error`, async () => {
      for (const { what, given } of cases) {
        if (typeof given !== 'object' || given === null || Array.isArray(given)) continue
        const asker = await Asker.open(scene.url, nextToken())
        const result = await asker.client
          .callTool({ name: tool, arguments: given as Json })
          .catch((error: Error) => error)
        if (result instanceof Error) assert.doesNotMatch(result.message, /internal|\b(5\d\d|429)\b/i, what)
        else {
          assert.ok(Buffer.byteLength(JSON.stringify(result)) <= MOST_BYTES, what)
          isReadable(what, result)
        }
        await asker.client.close()
      }
      assert.deepEqual(errorsLogged(), [])
    })
  }

  test('a call of an unknown tool gets a JSON-RPC error that names a similar tool', async () => {
    for (const [name, told] of [
      ['get_statu', /did you mean get_status/],
      ['__proto__', /no tool __proto__/],
      ['x'.repeat(100_000), /no tool x{64}$/],
    ] as const) {
      const { status, text } = await send({ body: call(name, {}) })
      const { error } = messageOf(text) as { error: { code: number; message: string } }
      assert.equal(status, 200)
      assert.equal(error.code, -32_602)
      assert.match(error.message, told)
    }
  })
})

describe('malformed requests of lists and prompts', () => {
  for (const [method, params, told] of [
    ['prompts/get', { name: 'hypothesis', arguments: { server: 7 } }, /arguments\.server: .*expected string/],
    ['prompts/get', { name: 'hypothesis', arguments: ['flaky'] }, /arguments: .*expected record/],
    ['prompts/get', { name: 7 }, /name: .*expected string/],
    ['prompts/get', undefined, /name: .*expected string/],
    ['prompts/list', { cursor: 7 }, /cursor: .*expected string/],
    ['tools/list', { cursor: 7 }, /cursor: .*expected string/],
  ] as const)
    test(`${method} with ${JSON.stringify(params)} gets an error that names the parameter`, async () => {
      const { text } = await send({ body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }) })
      const { error } = messageOf(text) as { error: { code: number; message: string } }
      assert.equal(error.code, -32_602)
      assert.match(error.message, told)
    })
})

/** A JSON text of many levels. */
const deep = (levels: number) => '['.repeat(levels) + ']'.repeat(levels)

/** Requests that the listener refuses, with the status. */
const misuses: readonly (readonly [what: string, status: number, sent: () => Sent])[] = [
  ['without a token', 401, () => ({ headers: { authorization: '' }, body: ping })],
  ['with a wrong token', 401, () => ({ headers: { authorization: 'Bearer wrong-secret' }, body: ping })],
  ['with an empty token', 401, () => ({ headers: { authorization: 'Bearer ' }, body: ping })],
  [
    'with a token of 8 KB',
    401,
    () => ({ headers: { authorization: `Bearer ${'s'.repeat(8_000)}` }, body: ping }),
  ],
  ['with another scheme', 401, () => ({ headers: { authorization: `Basic ${nextToken()}` }, body: ping })],
  [
    'with the token in the URL',
    401,
    () => ({ path: `/mcp?token=${nextToken()}`, headers: { authorization: '' } }),
  ],
  [
    'with the token of the control plane',
    401,
    () => ({ headers: { authorization: `Bearer ${scene.gateway.token}` }, body: ping }),
  ],
  [
    'for another path, without a token',
    401,
    () => ({ path: '/admin/servers', headers: { authorization: '' } }),
  ],
  ['for another path, with a token', 404, () => ({ path: '/admin/servers', method: 'GET' })],
  ['for another host', 403, () => ({ headers: { host: 'evil.example' }, body: ping })],
  ['from a page of another site', 403, () => ({ headers: { origin: 'https://evil.example' }, body: ping })],
  ['from a page without an origin', 403, () => ({ headers: { origin: 'null' }, body: ping })],
  [
    'that a browser marks as cross-site',
    403,
    () => ({ headers: { 'sec-fetch-site': 'cross-site' }, body: ping }),
  ],
  ['of the content type text', 415, () => ({ headers: { 'content-type': 'text/plain' }, body: ping })],
  ['of a form', 415, () => ({ headers: { 'content-type': 'multipart/form-data; boundary=x' }, body: ping })],
  ['without a content type', 415, () => ({ headers: { 'content-type': '' }, body: ping })],
  ['that accepts no events', 406, () => ({ headers: { accept: 'application/json' }, body: ping })],
  ['that is not JSON', 400, () => ({ body: '{"jsonrpc":' })],
  ['that is not UTF-8', 400, () => ({ body: Buffer.from([0x7b, 0xff, 0xfe, 0x7d]) })],
  ['without a body', 400, () => ({ body: '' })],
  ['of 300 KB', 413, () => ({ body: call('get_status', { x: 'x'.repeat(300_000) }) })],
  ['of JSON with 129 levels', 400, () => ({ body: deep(129) })],
  ['of JSON with 100,000 levels', 400, () => ({ body: deep(100_000) })],
  ['of a batch', 400, () => ({ body: `[${ping},${ping}]` })],
  ['of an empty batch', 400, () => ({ body: '[]' })],
  ['of a number', 400, () => ({ body: '7' })],
  ['of null', 400, () => ({ body: 'null' })],
  ['of a message without a method', 400, () => ({ body: '{"jsonrpc":"2.0","id":1}' })],
  ['of JSON-RPC 1.0', 400, () => ({ body: '{"jsonrpc":"1.0","id":1,"method":"ping"}' })],
  ['by GET', 405, () => ({ method: 'GET', headers: { 'content-type': '' } })],
  ['by GET with a content type', 405, () => ({ method: 'GET' })],
  ['by DELETE', 405, () => ({ method: 'DELETE' })],
  ['by PUT', 405, () => ({ method: 'PUT', body: ping })],
  ['by PATCH', 405, () => ({ method: 'PATCH', body: ping })],
  ['by OPTIONS', 405, () => ({ method: 'OPTIONS' })],
  ['by TRACE', 405, () => ({ method: 'TRACE' })],
  ['by PROPFIND', 404, () => ({ method: 'PROPFIND' })],
  ['with a target that cannot be read', 400, () => ({ path: 'http://x:99999/mcp', body: ping })],
]

describe('misuse of the listener of the control MCP server', () => {
  for (const [what, expected, sent] of misuses)
    test(`a request ${what} gets ${expected}`, async () => {
      const { status, text } = await send(sent())
      assert.equal(status, expected, text.slice(0, 300))
      assert.doesNotMatch(text, /internal/i)
      assert.doesNotMatch(text, /secret/)
    })

  test('the refusal of a large body names the limit of the control MCP server', async () => {
    const { text } = await send({ body: call('get_status', { x: 'x'.repeat(300_000) }) })
    assert.match(text, /at most 262144 bytes \(256 KiB, for the control MCP server\)/)
  })

  test('a target with credentials reaches the server as any other target', async () => {
    const { status } = await send({ path: 'http://user:password@localhost/mcp', body: ping })
    assert.equal(status, 200)
  })

  test('the token of an agent opens neither the control plane nor an order there', async () => {
    const headers = { authorization: `Bearer ${nextToken()}`, 'content-type': 'application/json' }
    for (const path of ['/admin/reload', '/admin/experiments', '/admin/proposals/approve']) {
      const response = await fetch(scene.gateway.control + path, { method: 'POST', headers, body: '{}' })
      assert.equal(response.status, 401, path)
    }
  })

  test('after all misuse the gateway serves, and its log holds no token and no internal error', async () => {
    await isServing()
    const log = scene.gateway.program.lines.join('\n')
    assert.doesNotMatch(log, /secret-of-agent|wrong-secret/)
    assert.ok(!log.includes(scene.gateway.token))
    assert.deepEqual(errorsLogged(), [])
  })
})
