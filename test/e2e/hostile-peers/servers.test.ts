import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import { after, before, test } from 'node:test'
import { cleanUp, type Json } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'
import { Scene } from './scene.ts'

/**
 * Timeout for a server without an answer, in milliseconds. Servers with a bad answer get more time: the gateway must
 * find the answer bad, not late.
 */
const TIMEOUT_MS = 400

/** Concurrent calls of each kind. */
const AT_ONCE = 5

interface Asked {
  readonly id: unknown
  readonly socket: Socket
  say(text: string | Buffer): void
  /** Repeats a text for as long as the gateway reads. */
  keepSaying(text: string | Buffer): void
}

const head = (type: string, ...lines: string[]) =>
  ['HTTP/1.1 200 OK', `Content-Type: ${type}`, ...lines, '', ''].join('\r\n')
const sized = (body: string | Buffer, type = 'application/json', ...lines: string[]) =>
  Buffer.concat([
    Buffer.from(head(type, `Content-Length: ${Buffer.byteLength(body)}`, ...lines)),
    Buffer.from(body),
  ])
const stream = head('text/event-stream', 'Connection: close')
const result = (id: unknown, value: unknown = { content: [] }) =>
  JSON.stringify({ jsonrpc: '2.0', id, result: value })
const event = (text: string) => `data: ${text}\n\n`

/** A server's misbehaviour for a call, and the caller's reply: a result, or the code of an error. */
const misdeeds: Readonly<Record<string, readonly [RegExp, (asked: Asked) => void]>> = {
  'says nothing': [/BW_/, () => undefined],
  'sends half a head': [/BW_/, ({ say }) => say('HTTP/1.1 200 OK\r\nContent-Ty')],
  'sends a head and no body': [/BW_/, ({ say }) => say(head('application/json', 'Content-Length: 10'))],
  'sends a body that breaks off': [
    /BW_/,
    ({ say, socket }) => (say(head('application/json', 'Content-Length: 99')), say('{"json'), socket.end()),
  ],
  'closes the connection': [/BW_/, ({ socket }) => socket.destroy()],
  'resets the connection': [/BW_/, ({ socket }) => socket.resetAndDestroy()],
  'resets the connection in mid head': [
    /BW_/,
    ({ say, socket }) => (say('HTTP/1.1 200'), setImmediate(() => socket.resetAndDestroy())),
  ],
  'resets the connection in mid body': [
    /BW_/,
    ({ say, socket }) => (
      say(head('application/json', 'Content-Length: 99')),
      say('{'),
      setImmediate(() => socket.resetAndDestroy())
    ),
  ],
  'resets the connection in mid event': [
    /BW_/,
    ({ say, socket }) => (say(stream), say('data: {'), setImmediate(() => socket.resetAndDestroy())),
  ],
  'speaks no HTTP': [/BW_/, ({ say }) => say('220 mail.example ESMTP\r\n')],
  'sends a negative length': [/BW_/, ({ say }) => say(head('application/json', 'Content-Length: -1'))],
  'sends a length that no memory holds': [
    /BW_/,
    ({ say }) => say(head('application/json', 'Content-Length: 9999999999999999')),
  ],
  'sends two lengths': [
    /BW_/,
    ({ say }) => say(head('application/json', 'Content-Length: 5', 'Content-Length: 6') + '{"a":1'),
  ],
  'sends chunks without a size': [
    /BW_/,
    ({ say }) => say(head('application/json', 'Transfer-Encoding: chunked') + 'zz\r\n{}\r\n'),
  ],
  'sends gzip that breaks off': [
    /BW_/,
    ({ id, say }) =>
      say(sized(gzipSync(result(id)).subarray(0, 20), 'application/json', 'Content-Encoding: gzip')),
  ],
  'says 100 without end': [/BW_/, ({ keepSaying }) => keepSaying('HTTP/1.1 100 Continue\r\n\r\n')],
  'says 103 without end': [
    /BW_/,
    ({ keepSaying }) => keepSaying('HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n'),
  ],
  'sends comments without end': [
    /BW_/,
    ({ say, keepSaying }) => (say(stream), keepSaying(': still here\n\n')),
  ],
  'sends line ends without end': [/BW_/, ({ say, keepSaying }) => (say(stream), keepSaying('\r\r\r\r'))],
  'sends a head without end': [
    /BW_/,
    ({ say, keepSaying }) => (say('HTTP/1.1 200 OK\r\n'), keepSaying(`X-More: ${'x'.repeat(500)}\r\n`)),
  ],
  'sends HTML': [/BW_BAD_REPLY/, ({ say }) => say(sized('<html>no</html>', 'text/html'))],
  'sends JSON that is none': [/BW_BAD_REPLY/, ({ say }) => say(sized('{"jsonrpc":'))],
  'sends invalid UTF-8': [/BW_BAD_REPLY/, ({ say }) => say(sized(Buffer.from([0xff, 0xfe, 0x7b])))],
  'answers somebody else': [/BW_BAD_REPLY/, ({ say }) => say(sized(result('nobody')))],
  'answers with a batch': [/BW_BAD_REPLY/, ({ id, say }) => say(sized(`[${result(id)},${result(id)}]`))],
  'answers with a result that is no object': [
    /BW_BAD_REPLY/,
    ({ id, say }) => say(sized(result(id, 'done'))),
  ],
  'answers with a number that is no id': [
    /BW_BAD_REPLY/,
    ({ say }) => say(sized('{"jsonrpc":"2.0","id":{},"result":{}}')),
  ],
  'answers with JSON of any depth': [
    /BW_|"result"/,
    ({ id, say }) =>
      say(sized(result(id, {}).replace('{}', `{"content":[],"x":${'['.repeat(5_000)}${']'.repeat(5_000)}}`))),
  ],
  'answers nobody by name': [
    /BW_BAD_REPLY/,
    ({ id, say }) => say(stream + event(result(null)) + event(result(id))),
  ],
  'answers twice': [
    /"result"/,
    ({ id, say }) =>
      say(stream + event(result(id)) + event(result(id, { content: [{ type: 'text', text: 'two' }] }))),
  ],
  'answers others first': [
    /"result"/,
    ({ id, say }) => say(stream + event(result('nobody')) + event(result(id))),
  ],
}

const sockets = new Set<Socket>()
let server: Server
let scene: Scene
let agent: RawClient

before(async () => {
  server = createServer((socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    socket.on('error', () => undefined)
    let text = ''
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1')
      for (let asked = next(); asked !== undefined; asked = next()) answer(socket, asked)
    })
    /** Returns the next complete request; a request without a body becomes its verb. */
    const next = (): Json | undefined => {
      const end = text.indexOf('\r\n\r\n')
      if (end === -1) return undefined
      const length = Number(/content-length: (\d+)/i.exec(text.slice(0, end))?.[1] ?? 0)
      if (text.length < end + 4 + length) return undefined
      const body = text.slice(end + 4, end + 4 + length)
      const [verb] = text.split(' ')
      text = text.slice(end + 4 + length)
      return body === '' ? { verb } : (JSON.parse(body) as Json)
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
  const mayTimeOut = Object.entries(misdeeds).filter(([, [expected]]) => expected.test('BW_ATTEMPT_TIMEOUT'))
  const policies = {
    defaults: { retry: { maxRetries: 0 }, breaker: false },
    // A glob holds no spaces.
    overrides: mayTimeOut.map(([name]) => ({
      match: { tool: name.replaceAll(' ', '?') },
      attemptTimeout: { timeout: TIMEOUT_MS },
    })),
  }
  scene = await Scene.start({ servers: { hostile: { url, era: 'legacy' } }, policies }, async (gateway) => {
    agent = await RawClient.open(gateway.mcp('hostile'))
    assert.ok('result' in (await agent.call('behaves')))
  })
})
after(async () => {
  for (const socket of sockets) socket.destroy()
  server.close()
  await cleanUp()
})

function answer(socket: Socket, { id, method, params }: Json): void {
  const say = (text: string | Buffer) => void (socket.writable && socket.write(text))
  if (method === undefined) return say('HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n')
  if (id === undefined) return say('HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n')
  const known: Readonly<Record<string, unknown>> = {
    initialize: {
      protocolVersion: '2025-11-25',
      capabilities: { tools: {} },
      serverInfo: { name: 'h', version: '1' },
    },
    'tools/list': {
      tools: [...Object.keys(misdeeds), 'behaves'].map((name) => ({ name, inputSchema: { type: 'object' } })),
    },
    ping: {},
  }
  const misdeed = misdeeds[String((params as Json | undefined)?.name)]
  if (method !== 'tools/call' || misdeed === undefined)
    return say(sized(result(id, known[String(method)] ?? { content: [] })))
  const keepSaying = (text: string | Buffer) => {
    const again = () => {
      if (!socket.writable) return
      // As fast as the peer reads, which is the worst case.
      if (socket.write(text)) setImmediate(again)
      else socket.once('drain', again)
    }
    again()
  }
  misdeed[1]({ id, socket, say, keepSaying })
}

for (const [name, [expected]] of Object.entries(misdeeds))
  test(`a server that ${name} fails its own calls, in time, and nobody else's`, async () => {
    await scene.beside(async () => {
      const calls = Array.from({ length: AT_ONCE }, () => agent.call(name))
      for (const told of await Promise.all(calls))
        // The result itself may be too deep for JSON.stringify.
        assert.match('result' in told ? '"result"' : JSON.stringify(told), expected)
    })
    assert.ok('result' in (await agent.call('behaves')), 'the server serves again as soon as it behaves')
  })

test('the hostile servers leave nothing behind', () => scene.isClean())
