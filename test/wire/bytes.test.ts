import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { headersOf, metaOf } from '../e2e/support/modern-client.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers, RawServer } from '../e2e/support/raw-server.ts'

/** Byte-level faults, seen by an agent and a server built on plain sockets. */
const faults: Readonly<Record<string, Json>> = {
  drip: { type: 'conn.slow_drip', chunk: 16, gap: '20ms' },
  thin: { type: 'conn.bandwidth', kibPerSecond: 1 },
  reset_head: { type: 'conn.reset' },
  reset_bytes: { type: 'conn.reset', at: { afterBytes: 21 } },
  reset_time: { type: 'conn.reset', at: { after: '150ms' } },
  cut: { type: 'sse.cut', afterEvents: 1 },
  garbled: { type: 'sse.bad_frame', afterEvents: 1 },
  stall: { type: 'sse.stall', afterEvents: 1, stall: '700ms' },
}

const eras = ['legacy', 'modern'] as const
type Era = (typeof eras)[number]

/**
 * Two bytes a character, so odd-sized portions cut characters. Long enough that a reader stalled by a busy machine does
 * not find everything at once.
 */
const WORDS = 'größer '.repeat(160)

/** How connections to the servers ended, by the tool called over them. */
const ended = new Map<string, Promise<string>>()

let gateway: Gateway

function answer(id: unknown, era: Era): string {
  const type = era === 'modern' ? { resultType: 'complete' } : {}
  const result = { ...type, content: [{ type: 'text', text: WORDS }] }
  return JSON.stringify({ jsonrpc: '2.0', id, result })
}

const progress = (n: number) =>
  JSON.stringify({
    jsonrpc: '2.0',
    method: 'notifications/progress',
    params: { progressToken: 'p', progress: n },
  })

/** Answers calls; streaming tools get a stream with two messages before the answer. */
function startServer(era: Era): Promise<RawServer> {
  return RawServer.start(({ message }, response) => {
    const { id, method, params } = message as { id?: unknown; method?: string; params?: { name: string } }
    const json = (result: Json) =>
      void response.end(JSON.stringify({ jsonrpc: '2.0', id, result: { resultType: 'complete', ...result } }))
    if (method === 'server/discover')
      return json({
        supportedVersions: ['2026-07-28'],
        capabilities: { tools: {} },
        ttlMs: 60_000,
        cacheScope: 'private',
      })
    if (method === 'tools/list') return json({ tools: [], ttlMs: 60_000, cacheScope: 'private' })
    if (method !== 'tools/call' || params === undefined) return false
    watch(`${era} ${params.name}`, response)
    if (params.name === 'reset_time') return true
    if (!params.name.startsWith('stream')) {
      const text = answer(id, era)
      response.writeHead(200, {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(text),
      })
      response.end(text)
      return true
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const n of [1, 2]) response.write(`data: ${progress(n)}\n\n`)
    response.write(`data: ${answer(id, era)}\n\n`)
    // The gateway has to cut a cut stream: this server would leave it open.
    if (!params.name.endsWith('cut')) response.end()
    return true
  })
}

function watch(name: string, { socket }: ServerResponse): void {
  const end = new Promise<string>((resolve) => {
    socket?.once('error', ({ message }) => resolve(message))
    socket?.once('close', () => resolve('closed'))
  })
  if (!ended.has(name)) ended.set(name, end)
}

before(async () => {
  const [legacy, modern] = await Promise.all(eras.map(startServer))
  const entries = Object.entries(faults).flatMap(([name, fault]) =>
    eras.flatMap((era) =>
      (['upstream', 'client'] as const).map((side) => ({
        name: `${name}-${era}-${side}`,
        rate: 1,
        ttl: '10m',
        allowWrites: true,
        side,
        match: { server: `${era}_${side}`, tool: `*${name}` },
        ...fault,
        // Node checks idle connections only twice a second.
        ...(name === 'stall' && side === 'upstream' && { stall: '4s' }),
      })),
    ),
  )
  const entry = (url: string, era: Era) => ({ url, era, timeouts: { idle: '400ms' } })
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: {
      legacy_upstream: entry(legacy!.url, 'legacy'),
      legacy_client: entry(legacy!.url, 'legacy'),
      modern_upstream: entry(modern!.url, 'modern'),
      modern_client: entry(modern!.url, 'modern'),
    },
    policies: { defaults: { retry: false, gate: false, overdue: false, verdict: false } },
    chaos: { enabled: true, persist: true, faults: entries },
  })
  await gateway.waitFor('up', 'legacy_upstream', 'legacy_client', 'modern_upstream', 'modern_client')
})
after(async () => {
  await cleanUp()
  closeServers()
})

/** The portions an agent reads of one reply, until the reply is whole or the connection ends. */
interface Read {
  readonly head: string
  readonly body: Buffer
  /** The bytes of each read. */
  readonly portions: readonly Buffer[]
  /** `whole`, `end`, or the code of an error. */
  readonly end: string
  readonly tookMs: number
}

/** Calls a tool over its own socket. */
async function call(era: Era, side: 'upstream' | 'client', tool: string): Promise<Read> {
  const url = new URL(gateway.mcp(`${era}_${side}`))
  const params = {
    name: tool,
    arguments: {},
    _meta: { progressToken: 'p', ...(era === 'modern' ? metaOf() : {}) },
  }
  const message = { jsonrpc: '2.0', id: 'the-call', method: 'tools/call', params }
  const headers = era === 'modern' ? headersOf(message) : (await RawClient.open(url.href)).headers
  const text = JSON.stringify(message)
  const lines = Object.entries({
    host: url.host,
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'content-length': String(Buffer.byteLength(text)),
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`)
  const socket = connect(Number(url.port), url.hostname).setNoDelay()
  await once(socket, 'connect')
  const since = performance.now()
  socket.write(`POST ${url.pathname} HTTP/1.1\r\n${lines.join('')}\r\n${text}`)
  const { chunks, end } = await readAll(socket)
  socket.destroy()
  const all = Buffer.concat(chunks)
  const at = all.indexOf('\r\n\r\n')
  const headSize = at === -1 ? all.length : at + 4
  let seen = 0
  const portions = chunks.flatMap((chunk) => {
    const rest = chunk.subarray(Math.max(0, headSize - seen))
    seen += chunk.length
    return rest.length === 0 ? [] : [rest]
  })
  return {
    head: all.subarray(0, headSize).toString('latin1'),
    body: all.subarray(headSize),
    portions,
    end,
    tookMs: performance.now() - since,
  }
}

function readAll(socket: Socket): Promise<{ chunks: Buffer[]; end: string }> {
  const chunks: Buffer[] = []
  return new Promise((resolve) => {
    const end = (how: string) => resolve({ chunks, end: how })
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk)
      if (isWhole(Buffer.concat(chunks))) end('whole')
    })
    socket.once('end', () => end('end'))
    socket.once('error', ({ code }: NodeJS.ErrnoException) => end(String(code)))
  })
}

function isWhole(all: Buffer): boolean {
  const at = all.indexOf('\r\n\r\n')
  if (at === -1) return false
  const length = /content-length: (\d+)/i.exec(all.subarray(0, at).toString())?.[1]
  return length === undefined
    ? all.subarray(-5).equals(Buffer.from('0\r\n\r\n'))
    : all.length === at + 4 + Number(length)
}

const lengthIn = ({ head }: Read) => Number(/content-length: (\d+)/i.exec(head)?.[1])

const reasonIn = ({ body }: Read) => /"reason":"(\w+)"/.exec(body.toString())?.[1]

for (const era of eras) {
  test(`conn.slow_drip, client, ${era}: 16 bytes at a time, also within a character, and all of them`, async () => {
    const read = await call(era, 'client', 'drip')
    assert.equal(read.end, 'whole')
    assert.ok(read.body.toString().includes(WORDS))
    // On a busy machine two writes may arrive in one read, but a write is never split.
    assert.ok(
      read.portions.every(
        (portion, index) => portion.length % 16 === 0 || index === read.portions.length - 1,
      ),
    )
    assert.ok(read.portions.length > 3, `${read.portions.length} portions`)
    assert.ok(read.tookMs >= (Math.ceil(read.body.length / 16) - 1) * 20 - 5)
    assert.ok(
      read.portions.some((portion) => portion.toString().includes('\ufffd')),
      'no portion cuts a character',
    )
  })

  test(`conn.bandwidth, client, ${era}: so many bytes a second, in many portions`, async () => {
    const read = await call(era, 'client', 'thin')
    assert.equal(read.end, 'whole')
    assert.ok(read.tookMs >= ((read.body.length - 51) / 1_024) * 1_000 - 5, `${read.tookMs} ms`)
    assert.ok(read.portions.length > 3, `${read.portions.length} portions`)
  })

  test(`conn.reset, client, ${era}: before the head nothing arrives but the reset`, async () => {
    const read = await call(era, 'client', 'reset_head')
    assert.deepEqual([read.head, read.body.length, read.end], ['', 0, 'ECONNRESET'])
  })

  test(`conn.reset afterBytes, client, ${era}: just these bytes of a body that was to be longer, and a reset`, async () => {
    const read = await call(era, 'client', 'reset_bytes')
    assert.deepEqual([read.body.length, read.end], [21, 'ECONNRESET'])
    assert.ok(lengthIn(read) > 21, read.head)
  })

  test(`sse.cut, client, ${era}: the stream ends behind its first message, in the middle of what HTTP promised`, async () => {
    const read = await call(era, 'client', 'stream_cut')
    assert.equal(read.end, 'end')
    assert.ok(read.body.includes('"progress":1') && !read.body.includes('"progress":2'), read.body.toString())
    assert.ok(!read.body.subarray(-5).equals(Buffer.from('0\r\n\r\n')))
  })

  test(`sse.bad_frame, client, ${era}: the message behind the first is no JSON, and the answer follows`, async () => {
    const read = await call(era, 'client', 'stream_garbled')
    assert.equal(read.end, 'whole')
    const data = [...read.body.toString().matchAll(/^data: ?(\S.*)$/gm)].map(([, text = '']) => text)
    const isJson = data.map((text) => text.startsWith('{'))
    assert.deepEqual(isJson, [true, false, true], data.join('\n'))
  })

  test(`sse.stall, client, ${era}: nothing for a while behind the first message, and then the rest`, async () => {
    const read = await call(era, 'client', 'stream_stall')
    assert.equal(read.end, 'whole')
    assert.ok(read.tookMs >= 695, `${read.tookMs} ms`)
    assert.ok(read.body.includes(WORDS.trim().slice(0, 20)))
  })

  test(`conn.slow_drip, upstream, ${era}: an idle timeout that is longer than the gaps does not see it`, async () => {
    const read = await call(era, 'upstream', 'drip')
    assert.ok(read.body.toString().includes(WORDS), read.body.toString())
    assert.ok(read.tookMs >= (Math.ceil(WORDS.length / 16) - 1) * 20, `${read.tookMs} ms`)
  })

  test(`sse.stall, upstream, ${era}: an idle timeout that is shorter than the silence ends it`, async () => {
    const read = await call(era, 'upstream', 'stream_stall')
    assert.equal(reasonIn(read), 'attempt_timeout', read.body.toString())
  })

  for (const [tool, error] of [
    // Node reports no error for a reset with nothing left to read or write.
    ['reset_head', /^closed|ECONNRESET$/],
    ['reset_bytes', /^closed|ECONNRESET$/],
    ['reset_time', /ECONNRESET$/],
    ['stream_cut', /^closed$/],
  ] as const)
    test(`${tool}, upstream, ${era}: the server's own connection ends, and the agent hears that the call may have run`, async () => {
      const read = await call(era, 'upstream', tool)
      assert.equal(reasonIn(read), 'upstream_disconnected', read.body.toString())
      assert.match(read.body.toString(), /"sent":true/)
      assert.match((await ended.get(`${era} ${tool}`)) ?? 'never', error)
    })

  test(`sse.bad_frame, upstream, ${era}: the gateway reads an event that is no JSON, and says so`, async () => {
    const read = await call(era, 'upstream', 'stream_garbled')
    assert.equal(reasonIn(read), 'bad_reply', read.body.toString())
  })
}
