/**
 * A replica of an MCP server of the modern era over HTTP that is ill as a row of the study `defaults` says: `ill-server.js ROW REPLICA`. Its
 * parent tells when the row begins, as `{ beganAt }` in milliseconds of the Unix epoch, and asks for `counts`.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { systemClock } from '../src/mesh/clock.ts'
import type { Condition } from '../src/sim/servers.ts'
import { rows } from '../src/sim/studies/defaults/rows.ts'
import { echo, envelope, failure, type Request } from './echo.ts'

/** What a server has counted. */
export interface Counts {
  /** Calls that reached it. */
  readonly calls: number
  /** Calls that ran more than once. */
  readonly twice: number
}

export type Order = { readonly beganAt: number } | 'counts'

const CALL_MS = 30

/** How often it is looked at whether the server is away by now, in milliseconds. */
const LOOK_MS = 5

const [name, replica] = [process.argv[2], Number(process.argv[3])]
const row = rows.find((one) => one.name === name)
if (row === undefined) throw new Error(`no row ${name}`)
const drops = (row.drops ?? []).filter(([, dropped]) => dropped === replica)

const outcomeOf = echo(0)
const sockets = new Set<Socket>()
let beganAt = Infinity
let [calls, port, isAway] = [0, 0, false]
/** How often each text was echoed. */
const ran = new Map<string, number>()

const elapsedMs = () => systemClock.wall() - beganAt
const conditionNow = (): Condition =>
  beganAt === Infinity ? { is: 'well' } : row.condition(replica, elapsedMs())

const server = createServer((request, response) => {
  if (conditionNow().is === 'resets') return void request.socket.destroy()
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
  if (method !== 'tools/call') return send(request, response, envelope(outcomeOf(asked, true), id))
  const condition = conditionNow()
  const hits = 'rate' in condition && Math.random() < condition.rate
  calls++
  if (condition.is === 'hangs') return
  if (condition.is === 'limits') {
    const seconds = Math.ceil(condition.retryAfterMs / 1_000)
    return void response.writeHead(429, { 'retry-after': String(seconds) }).end()
  }
  const fails = hits && condition.is === 'fails'
  const text = params?.arguments?.text ?? ''
  if (!fails) ran.set(text, (ran.get(text) ?? 0) + 1)
  const outcome = fails ? failure(-32_603, 'internal error') : outcomeOf(hits ? cut(asked) : asked, true)
  const times = condition.is === 'slow' ? condition.times : 1
  systemClock.after(CALL_MS * (0.5 + Math.random()) * times, () =>
    send(request, response, envelope(outcome, id)),
  )
}

/** The same call, of which the end of the text is missing. */
function cut(asked: Request): Request {
  const text = asked.params?.arguments?.text ?? ''
  return { ...asked, params: { ...asked.params, arguments: { text: text.slice(0, -1) } } }
}

function send({ socket }: IncomingMessage, response: ServerResponse, body: string): void {
  if (socket.destroyed) return
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
  response.end(body)
}

function dropAll(): void {
  for (const socket of sockets) socket.destroy()
}

function look(): void {
  const wasAway = isAway
  isAway = conditionNow().is === 'away'
  if (isAway && !wasAway) server.close()
  if (!isAway && wasAway) server.listen(port, '127.0.0.1')
  if (elapsedMs() >= (drops[0]?.[0] ?? Infinity) * 1_000) {
    drops.shift()
    dropAll()
  }
  systemClock.after(LOOK_MS, look)
}

process.on('message', (order: Order) => {
  if (order !== 'counts') ({ beganAt } = order)
  const twice = [...ran.values()].filter((times) => times > 1).length
  process.send?.({ calls, twice } satisfies Counts)
})
process.once('SIGTERM', () => process.exit(0))
server.listen(0, '127.0.0.1', () => {
  port = (server.address() as AddressInfo).port
  process.stdout.write(`${JSON.stringify({ msg: 'listening', data: `http://127.0.0.1:${port}` })}\n`)
  look()
})
