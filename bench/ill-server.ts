/**
 * A replica of an MCP server of the modern era over HTTP, ill like a row of the study `defaults`: `ill-server.js ROW
 * REPLICA`. Its parent sends the start of the row, as `{ beganAt }` in milliseconds of the Unix epoch, and asks for
 * `counts`.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { systemClock } from '../src/mesh/clock.ts'
import { createKeyedRandom } from '../src/mesh/keyed-random.ts'
import type { Condition, ErrorForm } from '../src/sim/servers.ts'
import { OFFENCE, rows } from '../src/sim/studies/defaults/rows.ts'
import { RESTART_MS } from '../src/sim/studies/defaults/run.ts'
import { echo, envelope, failure, type Request } from './echo.ts'

/** Counts of one server. */
export interface Counts {
  readonly calls: number
  /** Calls that ran more than once. */
  readonly twice: number
}

export type Order = { readonly beganAt: number } | 'counts'

/** Default mean latency of a call, in milliseconds. */
const CALL_MS = 30

/** Interval of checks whether the server is away, in milliseconds. */
const LOOK_MS = 5

const [name, replica] = [process.argv[2], Number(process.argv[3])]
const row = rows.find((one) => one.name === name)!
const drops = (row.drops ?? []).filter(([, dropped]) => dropped === replica)

const outcomeOf = echo(0)
const sockets = new Set<Socket>()
let beganAt = Infinity
let [calls, port, isAway] = [0, 0, false]
/** End of an outage caused by a call that killed the process. */
let awayUntil = -Infinity
/** Each run has its own seed, shared by all replicas of the run. */
let random = createKeyedRandom(0)
const ran = new Map<string, number>()

const elapsedMs = () => systemClock.wall() - beganAt
function conditionNow(): Condition {
  if (systemClock.now() < awayUntil) return { is: 'away' }
  return beganAt === Infinity ? { is: 'well' } : row.condition(replica, elapsedMs(), random)
}

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
  const text = params?.arguments?.text ?? ''
  const met = text === OFFENCE ? row.offenders?.meets(String(id), random) : undefined
  if (met?.is === 'ends') {
    awayUntil = systemClock.now() + RESTART_MS
    return look()
  }
  const condition = met ?? conditionNow()
  const hits = 'rate' in condition && Math.random() < condition.rate
  calls++
  if (condition.is === 'hangs') return
  if (condition.is === 'limits') {
    const seconds = Math.ceil(condition.retryAfterMs / 1_000)
    return void response.writeHead(429, { 'retry-after': String(seconds) }).end()
  }
  const fails = hits && condition.is === 'fails'
  if (!fails) ran.set(text, (ran.get(text) ?? 0) + 1)
  const outcome = fails
    ? errorForms[condition.as ?? 'internal_error']
    : outcomeOf(hits ? cut(asked) : asked, true)
  const times = fails ? 1 / 4 : condition.is === 'slow' ? condition.times : 1
  systemClock.after((row.callMs ?? CALL_MS) * (0.5 + Math.random()) * times, () =>
    send(request, response, envelope(outcome, id)),
  )
}

const errorForms: Readonly<Record<ErrorForm, string>> = {
  internal_error: failure(-32_603, 'internal error'),
  invalid_params: failure(-32_602, 'invalid params'),
  tool_error:
    '"result":{"content":[{"type":"text","text":"it failed"}],"isError":true,"resultType":"complete"}',
}

/** The same call with its text cut off at the end. */
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
  if (isAway && systemClock.now() < awayUntil) dropAll()
  if (!isAway && wasAway) server.listen(port, '127.0.0.1')
  if (elapsedMs() >= (drops[0]?.[0] ?? Infinity) * 1_000) {
    drops.shift()
    dropAll()
  }
}

function lookOn(): void {
  look()
  systemClock.after(LOOK_MS, lookOn)
}

process.on('message', (order: Order) => {
  if (order !== 'counts') {
    beganAt = order.beganAt
    random = createKeyedRandom(beganAt)
  }
  const twice = [...ran.values()].filter((times) => times > 1).length
  process.send?.({ calls, twice } satisfies Counts)
})
process.once('SIGTERM', () => process.exit(0))
server.listen(0, '127.0.0.1', () => {
  port = (server.address() as AddressInfo).port
  process.stdout.write(`${JSON.stringify({ msg: 'listening', data: `http://127.0.0.1:${port}` })}\n`)
  lookOn()
})
