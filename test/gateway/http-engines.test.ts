import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { test, type TestContext } from 'node:test'
import { until } from '../support/until.ts'
import { runGateway } from './running-gateway.ts'

const JSON_TYPE = 'Content-Type: application/json\r\n'
const BOTH = 'Accept: application/json, text/event-stream\r\n'

const requestOf = (line: string, headers: string, body = '') =>
  `${line} HTTP/1.1\r\nHost: localhost\r\n${headers}${body === '' ? '' : `Content-Length: ${Buffer.byteLength(body)}\r\n`}\r\n${body}`

const post = (body: string | object, headers = JSON_TYPE + BOTH, path = '/mcp') =>
  requestOf(`POST ${path}`, headers, typeof body === 'string' ? body : JSON.stringify(body))

const initialize = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'raw', version: '1' } },
}
const ping = { jsonrpc: '2.0', id: 'ü', method: 'ping' }
const note = { jsonrpc: '2.0', method: 'notifications/initialized' }

/** Sends requests one after another on a connection. Returns all bytes of the replies, without dates and ids. */
async function talk(data: string, requests: (session: string) => readonly string[]): Promise<string> {
  const { hostname, port } = new URL(data)
  const socket = connect(Number(port), hostname).setNoDelay()
  let text = ''
  let isEnded = false
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1'))).on('end', () => (isEnded = true))
  socket.on('error', () => undefined)
  const send = async (request: string) => {
    const before = text.length
    socket.write(request)
    await until('a reply has come', () => isEnded || isWhole(text.slice(before)))
  }
  await send(post(initialize))
  const [, session = ''] = /mcp-session-id: (\S+)/i.exec(text) ?? []
  for (const request of requests(`${JSON_TYPE}${BOTH}Mcp-Session-Id: ${session}\r\n`)) await send(request)
  socket.destroy()
  return text.replaceAll(/Date: [^\r]+/g, 'Date: now').replaceAll(session, 'session')
}

function isWhole(reply: string): boolean {
  const end = reply.indexOf('\r\n\r\n')
  if (end === -1) return false
  const [, length] = /content-length: (\d+)/i.exec(reply) ?? []
  if (length !== undefined) return reply.length >= end + 4 + Number(length)
  return !/transfer-encoding/i.test(reply) || reply.endsWith('\r\n0\r\n\r\n') || /event-stream/.test(reply)
}

const both = (t: TestContext) =>
  Promise.all(
    ['own', 'node'].map(async (http) => {
      const { gateway } = await runGateway(t, { servers: {}, gateway: { http } })
      return gateway.data
    }),
  )

test('agents get the same bytes from both readers of requests', async (t) => {
  const gateways = await both(t)
  const [own, node] = await Promise.all(
    gateways.map((data) =>
      talk(data, (session) => [
        post(note, session),
        post(ping, session),
        post(ping, session.replace('application/json, text', 'text')),
        post('{"jsonrpc":', session),
        post('"\ud800"', session),
        post([ping], session),
        post(ping, session, '/mcp/nobody'),
        post(ping, `${JSON_TYPE}Accept: text/plain\r\n`),
        post(ping, BOTH),
        post(ping, `${session}Origin: https://elsewhere.example\r\n`),
        post(ping, session),
        requestOf('GET /mcp', session.replace(JSON_TYPE, '')),
      ]),
    ),
  )
  assert.equal(own, node)
  assert.equal(own?.split('HTTP/1.1 ').length, 14)
})

test('a body over the limit of an initialize is refused with the same bytes by both readers', async (t) => {
  const gateways = await both(t)
  const large = { ...initialize, more: 'x'.repeat(70_000) }
  const [own, node] = await Promise.all(
    gateways.map((data) => talk(data, (session) => [post(large), post(ping, session)])),
  )
  assert.equal(own, node)
  assert.match(own ?? '', / 413 /)
})
