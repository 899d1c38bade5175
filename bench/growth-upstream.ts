/**
 * MCP servers (Streamable HTTP, legacy era), one at each path of one process, with any number of servers and tools.
 * `/mcp/any?tools=500&listen` has 500 tools, in pages, and keeps a stream open outside of calls.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { serve } from './serve.ts'

/** Orders of the parent; the answer to each completed order is an `UpstreamReport`. */
export type UpstreamOrder =
  /** Answers every call of `hold`. */
  | { readonly kind: 'release' }
  /** Sends an event with the time to all open streams, `count` times. */
  | { readonly kind: 'beat'; readonly count: number; readonly everyMs: number; readonly padding?: number }
  /** Sends an event to `each` of the open streams in turn, with the time of each, `count` times. */
  | { readonly kind: 'drip'; readonly count: number; readonly everyMs: number; readonly each: number }
  | { readonly kind: 'count' }

export interface UpstreamReport {
  /** Waiting calls of `hold`. */
  readonly held: number
  /** Open streams of `tick` and of GET. */
  readonly streams: number
}

interface Request {
  readonly id?: string | number
  readonly method: string
  readonly params?: {
    readonly name?: string
    readonly cursor?: string
    readonly arguments?: { readonly text?: string }
    readonly _meta?: { readonly progressToken?: string | number }
  }
}

/** Tools of a page. */
const PAGE = 1_000

/** Beside `echo`: `hold` answers on request, `tick` streams. */
const special = ['echo', 'hold', 'tick']

const initializeResult = {
  protocolVersion: '2025-06-18',
  capabilities: { tools: { listChanged: true }, logging: {} },
  serverInfo: { name: 'growth-upstream', version: '1.0.0' },
}

const held = new Set<() => void>()
/** Functions that write an event, one for each open stream. */
const streams = new Set<(stamp: string, padding: string) => void>()
const pages = new Map<string, string>()
let sessions = 0

serve(
  createServer({ keepAlive: true }, (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://localhost')
    const tools = Number(searchParams.get('tools') ?? 1)
    if (request.method === 'DELETE') return empty(response, 200)
    if (request.method === 'GET') return searchParams.has('listen') ? listen(response) : empty(response, 405)
    return read(request, (message) => answer(message, { tools, pathname }, response))
  }).on('connection', (socket) => socket.setNoDelay(true)),
)

process.on('message', (order: UpstreamOrder) => {
  if (order.kind === 'beat') return beat(order, order.count)
  if (order.kind === 'drip') return drip(order)
  if (order.kind === 'release') for (const answered of [...held]) answered()
  return report()
})
process.channel?.unref()

function report(): void {
  process.send?.({ held: held.size, streams: streams.size } satisfies UpstreamReport)
}

/** The time in an event is the machine's time: every process reads the same clock. */
function beat({ everyMs, padding = 0 }: Extract<UpstreamOrder, { kind: 'beat' }>, left: number): void {
  if (left === 0) return report()
  const stamp = String(process.hrtime.bigint())
  for (const write of streams) write(stamp, 'x'.repeat(padding))
  setTimeout(() => beat({ kind: 'beat', count: left, everyMs, padding }, left - 1), everyMs)
}

/** Each event has a separate time, and is written before the next event gets a time. */
function drip({ count, everyMs, each }: Extract<UpstreamOrder, { kind: 'drip' }>): void {
  const writers = [...streams]
  let next = 0
  const write = (left: number) => {
    if (left === 0) return
    writers[next++ % writers.length]?.(String(process.hrtime.bigint()), '')
    process.nextTick(write, left - 1)
  }
  const round = (left: number) => {
    if (left === 0) return report()
    write(each)
    setTimeout(round, everyMs, left - 1)
  }
  round(count)
}

function read(request: IncomingMessage, take: (message: Request) => void): void {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => take(JSON.parse(String(Buffer.concat(chunks))) as Request))
}

function answer(
  { id, method, params }: Request,
  { tools, pathname }: { readonly tools: number; readonly pathname: string },
  response: ServerResponse,
): void {
  if (id === undefined) return empty(response, 202)
  switch (method) {
    case 'initialize':
      return json(response, id, JSON.stringify(initializeResult), `${pathname}-${++sessions}`)
    case 'tools/list':
      return json(response, id, pageOf(tools, Number(params?.cursor ?? 0)))
    case 'tools/call':
      return call(id, params ?? {}, response)
    default:
      return json(response, id, '{}')
  }
}

function call(id: string | number, params: NonNullable<Request['params']>, response: ServerResponse): void {
  const text = JSON.stringify(params.arguments?.text ?? '')
  const result = `{"content":[{"type":"text","text":${text}}]}`
  if (params.name === 'hold') {
    const answered = () => {
      held.delete(answered)
      json(response, id, result)
    }
    held.add(answered)
    response.once('close', () => held.delete(answered))
  } else if (params.name === 'tick') {
    listen(response, params._meta?.progressToken)
  } else json(response, id, result)
}

/** Streams events while the client listens: progress of a call, or events outside of calls. */
function listen(response: ServerResponse, progressToken?: string | number): void {
  const token = JSON.stringify(progressToken)
  let progress = 0
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
  response.flushHeaders()
  const write = (stamp: string, padding: string) => {
    const message =
      progressToken === undefined
        ? `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"at ${stamp};${padding}"}}`
        : `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":${++progress},"message":"at ${stamp};${padding}"}}`
    response.write(`event: message\ndata: ${message}\n\n`)
  }
  streams.add(write)
  response.once('close', () => streams.delete(write))
}

function pageOf(tools: number, from: number): string {
  const key = `${tools} ${from}`
  let page = pages.get(key)
  if (page === undefined) {
    const to = Math.min(tools, from + PAGE)
    const list = Array.from({ length: to - from }, (_, index) => toolOf(from + index))
    page = JSON.stringify({ tools: list, ...(to < tools && { nextCursor: String(to) }) })
    pages.set(key, page)
  }
  return page
}

function toolOf(index: number): object {
  return {
    name: special[index] ?? `look_up_record_${index}`,
    description: 'Gives its text back.',
    inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  }
}

function json(response: ServerResponse, id: string | number, result: string, session?: string): void {
  const body = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${result}}`
  response.writeHead(200, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...(session !== undefined && { 'mcp-session-id': session.replaceAll('/', '-') }),
  })
  response.end(body)
}

function empty(response: ServerResponse, status: number): void {
  response.writeHead(status, { 'content-length': 0 })
  response.end()
}
