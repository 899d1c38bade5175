import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { systemClock } from '../src/mesh/clock.ts'
import { misdeeds } from './hostile-tools.ts'

const MIB = 1024 ** 2
const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }

/** Longest time of one request, in milliseconds. */
const PATIENCE_MS = 20_000

const initializeRequest = (name = 'x', more = '') =>
  `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"${name}","version":"1"}${more}}}`
const call = (name: string, args = '{}') =>
  `{"jsonrpc":"2.0","id":"${crypto.randomUUID()}","method":"tools/call","params":{"name":${name},"arguments":${args}}}`

/** Attacks once. Returns the outcome in a word. */
export type Deed = (target: Target) => Promise<string>

export interface Target {
  readonly origin: string
  readonly port: number
  /** Headers of a session at the endpoint of a server; empty without a session. */
  readonly session: Readonly<Record<string, string>>
}

async function post({ origin, session }: Target, path: string, body: string): Promise<string> {
  const response = await fetch(origin + path, {
    method: 'POST',
    headers: { ...headers, ...session },
    body,
    signal: AbortSignal.timeout(PATIENCE_MS),
  })
  const text = await response.text()
  const code = text.length < 4_096 ? /BW_\w+/.exec(text)?.[0] : undefined
  return code ?? String(response.status)
}

const posting =
  (body: () => string): Deed =>
  (target) =>
    post(target, '/mcp/quiet', body())

/** Opens a raw connection and runs `say`. Resolves at its end, or after `forMs`. */
async function saying(port: number, forMs: number, say: (socket: Socket) => void): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  let answer = ''
  socket.on('error', (error: NodeJS.ErrnoException) => (answer ||= error.code ?? 'error'))
  socket.on('data', (chunk: Buffer) => (answer ||= chunk.toString('latin1', 9, 12)))
  say(socket)
  const over = once(socket, 'close')
  await Promise.race([over, new Promise<void>((resolve) => systemClock.after(forMs, resolve))])
  socket.destroy()
  await over
  return answer || 'silence'
}

const head = (length: string) =>
  `POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: */*\r\n${length}\r\n\r\n`

export interface Attack {
  readonly deed: Deed
  /** Number of parallel attackers. */
  readonly atOnce: number
  /** True: each attacker has its own session. */
  readonly apart?: boolean
}

const large = 'x'.repeat(3 * MIB)
const keys = Array.from({ length: 250_000 }, (_, n) => `"k${n}":1`).join()
const fewerKeys = Array.from({ length: 90_000 }, (_, n) => `"k${n}":1`).join()
const deep = '['.repeat(1e5) + ']'.repeat(1e5)
const odd = ['{"toString":1}', '[["a"]]', 'null', 'true', '"__proto__"', `"${'x'.repeat(1e5)}"`]

export const attacks: Readonly<Record<string, Attack>> = {
  'names of other types': {
    atOnce: 8,
    deed: posting(() => call(odd[Math.floor(Math.random() * odd.length)]!)),
  },
  'values 100,000 deep': { atOnce: 4, deed: posting(() => call('"echo"', deep)) },
  'keys that stand twice': { atOnce: 8, deed: posting(() => call('"echo","Name":"store"')) },
  '250,000 keys': { atOnce: 2, deed: posting(() => call('"echo"', `{${keys}}`)) },
  '90,000 keys': { atOnce: 2, deed: posting(() => call('"echo"', `{${fewerKeys}}`)) },
  'hellos of 3 MiB': {
    atOnce: 2,
    deed: (target) => post({ ...target, session: {} }, '/mcp', initializeRequest(large)),
  },
  'calls of 3 MiB': { atOnce: 2, deed: posting(() => call('"echo"', `{"text":"${large}"}`)) },
  'bodies in crumbs': {
    atOnce: 4,
    deed: ({ port }) =>
      saying(port, PATIENCE_MS, (socket) => {
        socket.setNoDelay(true)
        socket.write(head('transfer-encoding: chunked'))
        for (const byte of initializeRequest('x'.repeat(100_000))) socket.write(`1\r\n${byte}\r\n`)
        socket.write('0\r\n\r\n')
      }),
  },
  'bodies that stall': {
    atOnce: 200,
    deed: ({ port }) =>
      saying(port, 1_000, (socket) => void socket.write(`${head('content-length: 99999')}{"a`)),
  },
  'heads that stall': {
    atOnce: 200,
    deed: ({ port }) => saying(port, 1_000, (socket) => void socket.write('POST /mcp HTTP/1.1\r\nhost: a')),
  },
  'no HTTP at all': {
    atOnce: 16,
    deed: ({ port }) =>
      saying(port, 1_000, (socket) => void socket.write(crypto.getRandomValues(Buffer.alloc(200)))),
  },
  'replies that nobody reads': {
    atOnce: 60,
    deed: ({ port, session }) =>
      saying(port, 1_000, (socket) => {
        socket.pause()
        const body = call('"large-reply"')
        const lines = Object.entries({ ...headers, ...session, 'content-length': String(body.length) })
        const text = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')
        socket.write(`POST /mcp/hostile HTTP/1.1\r\nhost: 127.0.0.1\r\n${text}\r\n${body}`)
      }),
  },
  ...Object.fromEntries(
    misdeeds.map((name) => [
      `a server's ${name}`,
      { atOnce: 2, deed: (target: Target) => post(target, '/mcp/hostile', call(`"${name}"`)) },
    ]),
  ),
  'rejections in a loop': { atOnce: 100, apart: true, deed: posting(() => call('"limited"')) },
  // Last, because this client then has no room for another session for a while.
  'new sessions': {
    atOnce: 16,
    deed: (target) => post({ ...target, session: {} }, '/mcp', initializeRequest()),
  },
}

/** Opens a session at the endpoint of a server. Returns its headers. */
export async function open(origin: string, server: string): Promise<Readonly<Record<string, string>>> {
  const response = await fetch(`${origin}/mcp/${server}`, {
    method: 'POST',
    headers,
    body: initializeRequest(),
  })
  await response.arrayBuffer()
  return { 'mcp-session-id': response.headers.get('mcp-session-id') ?? '' }
}
