/** An MCP server of the modern era over HTTP that is ill in the way that a message of its parent says. Its tools take 30 ms. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { systemClock } from '../src/mesh/clock.ts'
import { echo, envelope, failure, type Request } from './echo.ts'

/** How it is; see `Condition` of simulated servers. */
export type Illness =
  | { readonly is: 'well' | 'away' | 'resets' | 'hangs' }
  | { readonly is: 'fails'; readonly rate: number }
  | { readonly is: 'slow'; readonly times: number }
  | { readonly is: 'limits'; readonly retryAfterS: number }

const CALL_MS = 30
const outcomeOf = echo(0)
const sockets = new Set<Socket>()
let illness: Illness = { is: 'well' }
let calls = 0
/** How often each text was echoed. */
const ran = new Map<string, number>()

const server = createServer((request, response) => {
  if (illness.is === 'resets') return void request.socket.destroy()
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => answer(JSON.parse(Buffer.concat(chunks).toString()) as Request, request, response))
})
server.on('connection', (socket) => {
  sockets.add(socket)
  socket.once('close', () => sockets.delete(socket))
})

function answer(asked: Request, request: IncomingMessage, response: ServerResponse): void {
  const { id, method, params } = asked
  if (id === undefined) return void response.writeHead(202).end()
  const isCall = method === 'tools/call'
  if (isCall) calls++
  if (illness.is === 'hangs' && isCall) return
  if (illness.is === 'limits' && isCall)
    return void response.writeHead(429, { 'retry-after': String(illness.retryAfterS) }).end()
  const fails = isCall && illness.is === 'fails' && Math.random() < illness.rate
  const text = params?.arguments?.text ?? ''
  if (isCall && !fails) ran.set(text, (ran.get(text) ?? 0) + 1)
  const body = envelope(fails ? failure(-32_603, 'internal error') : outcomeOf(asked, true), id)
  const reply = () => {
    if (request.socket.destroyed) return
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
    response.end(body)
  }
  if (!isCall) return reply()
  systemClock.after(CALL_MS * (illness.is === 'slow' ? illness.times : 1), reply)
}

let port = 0
process.on('message', (message: Illness | 'counts') => {
  if (message === 'counts') {
    process.send?.({ calls, twice: [...ran.values()].filter((times) => times > 1).length })
    calls = 0
    ran.clear()
    return
  }
  const wasAway = illness.is === 'away'
  illness = message
  if (illness.is === 'away') server.close()
  if (illness.is === 'away' || illness.is === 'resets') for (const socket of sockets) socket.destroy()
  if (wasAway && illness.is !== 'away') server.listen(port, '127.0.0.1')
  process.send?.('done')
})
process.once('SIGTERM', () => process.exit(0))
server.listen(0, '127.0.0.1', () => {
  port = (server.address() as AddressInfo).port
  process.stdout.write(`${JSON.stringify({ msg: 'listening', data: `http://127.0.0.1:${port}` })}\n`)
})
