import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { headersOf, metaOf } from '../e2e/support/modern-client.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers, RawServer } from '../e2e/support/raw-server.ts'
import { until } from '../support/until.ts'

/**
 * Byte-level faults in combination: two at the same reply, one with the end of its call, and one with an agent that
 * does not read. In every combination the call and its connections end, and the faults report their fates.
 */

const eras = ['legacy', 'modern'] as const
type Era = (typeof eras)[number]

/** More characters than the system buffers for an unread connection. */
const HUGE = 'x'.repeat(12 * 1024 ** 2)

/** By the tool they hit, outermost first. */
const faults: Readonly<Record<string, readonly Json[]>> = {
  reset_cut: [{ type: 'conn.reset' }, { type: 'sse.cut', afterEvents: 1 }],
  drip_cut: [
    { type: 'conn.slow_drip', chunk: 64, gap: 1 },
    { type: 'sse.cut', afterEvents: 1 },
  ],
  late: [{ type: 'conn.reset', at: { after: '50ms' } }],
  held: [{ type: 'sse.cut', afterEvents: 1 }],
  fails: [{ type: 'conn.reset', at: { after: '1h' } }],
  huge: [{ type: 'sse.stall', afterEvents: 0, stall: '300ms' }],
}

let gateway: Gateway

/** Sends two messages and the answer as a stream of events; some tools never answer. */
async function startServer(era: Era): Promise<RawServer> {
  return RawServer.start(({ message }, response) => {
    const { id, method, params } = message as { id?: unknown; method?: string; params?: { name: string } }
    const json = (result: Json) =>
      void response.end(JSON.stringify({ jsonrpc: '2.0', id, result: { resultType: 'complete', ...result } }))
    if (era === 'modern' && method === 'server/discover')
      return json({
        supportedVersions: ['2026-07-28'],
        capabilities: { tools: {} },
        ttlMs: 60_000,
        cacheScope: 'private',
      })
    if (method === 'tools/list') return json({ tools: [], ttlMs: 60_000, cacheScope: 'private' })
    if (method !== 'tools/call' || params === undefined) return false
    const { name } = params
    if (name === 'late') return true
    if (name === 'fails') {
      response.writeHead(500).end()
      return true
    }
    if (name === 'huge') return json({ content: [{ type: 'text', text: HUGE }] })
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const progress of [1, 2]) {
      const told = {
        jsonrpc: '2.0',
        method: 'notifications/progress',
        params: { progressToken: 'p', progress },
      }
      response.write(`data: ${JSON.stringify(told)}\n\n`)
    }
    if (name !== 'held')
      response.end(
        `data: ${JSON.stringify({ jsonrpc: '2.0', id, result: { resultType: 'complete', content: [] } })}\n\n`,
      )
    return true
  })
}

before(async () => {
  const servers = await Promise.all(eras.map(startServer))
  const sides = ['upstream', 'client'] as const
  const entries = eras.flatMap((era, index) =>
    sides.map((side) => [`${era}_${side}`, { url: servers[index]!.url, era }] as const),
  )
  gateway = await Gateway.start({
    gateway: { environment: 'test', limits: { stalled: '3s' } },
    servers: Object.fromEntries(entries),
    policies: {
      defaults: { retry: false, gate: false, overdue: false, verdict: false, deadline: { total: '5s' } },
    },
    chaos: {
      enabled: true,
      persist: true,
      faults: eras.flatMap((era) =>
        sides.flatMap((side) =>
          Object.entries(faults).flatMap(([tool, list]) =>
            list.map((fault, at) => ({
              name: `${tool}-${at}-${era}-${side}`,
              rate: 1,
              ttl: '10m',
              allowWrites: true,
              side,
              match: { server: `${era}_${side}`, tool },
              ...fault,
            })),
          ),
        ),
      ),
    },
  })
  await gateway.waitFor('up', ...entries.map(([name]) => name))
})
after(async () => {
  await cleanUp()
  closeServers()
})

async function send(era: Era, side: 'upstream' | 'client', tool: string): Promise<Socket> {
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
  const socket = connect(Number(url.port), url.hostname)
  await once(socket, 'connect')
  socket.write(`POST ${url.pathname} HTTP/1.1\r\n${lines.join('')}\r\n${text}`)
  return socket
}

/** Reads until the answer arrives or the connection ends; returns the text and how reading ended. */
function read(socket: Socket): Promise<{ text: string; end: string }> {
  let text = ''
  return new Promise((resolve) => {
    const end = (how: string) => {
      socket.destroy()
      resolve({ text, end: how })
    }
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1')
      if (text.endsWith('0\r\n\r\n') || /content-length:.*"(result|error)".*\}$/s.test(text)) end('whole')
    })
    socket.once('end', () => end('end'))
    socket.once('error', ({ code }: NodeJS.ErrnoException) => end(String(code)))
  })
}

/** Returns the fates of a tool's faults, once they hold nothing any more. */
async function fatesOf(tool: string, era: Era, side: string): Promise<string[]> {
  interface Counted {
    readonly name: string
    readonly concurrent: number
    readonly injected: number
    readonly notApplicable: number
    readonly [fate: string]: number | string
  }
  const mine = async () => {
    const { body } = await gateway.admin<{ faults: Counted[] }>('/admin/chaos')
    return body.faults.filter(({ name }) => name.startsWith(`${tool}-`) && name.endsWith(`-${era}-${side}`))
  }
  await until('the faults are over', async () =>
    (await mine()).every((fault) => {
      const known = ['masked', 'delayed', 'surfaced', 'escaped', 'notReached'].reduce(
        (sum, fate) => sum + Number(fault[fate]),
        0,
      )
      return fault.concurrent === 0 && known === fault.injected && fault.injected + fault.notApplicable > 0
    }),
  )
  return (await mine()).map((fault) =>
    ['masked', 'delayed', 'surfaced', 'escaped', 'notReached', 'notApplicable']
      .filter((fate) => Number(fault[fate]) > 0)
      .join(),
  )
}

for (const era of eras) {
  test(`a reset and a cut of one reply, client, ${era}: the reset wins, and the call ends`, async () => {
    const { text, end } = await read(await send(era, 'client', 'reset_cut'))
    assert.deepEqual([text, end], ['', 'ECONNRESET'])
    if (era === 'legacy') await gateway.waitForCalls(0)
    assert.equal((await fatesOf('reset_cut', era, 'client'))[0], 'surfaced')
  })

  test(`a drip and a cut of one reply, client, ${era}: the message before the cut drips to its end`, async () => {
    const { text, end } = await read(await send(era, 'client', 'drip_cut'))
    assert.equal(end, 'end')
    assert.ok(/"progress":1\}\}\n\n\r?\n?$/.test(text) && !text.includes('"progress":2'), text)
    assert.deepEqual(await fatesOf('drip_cut', era, 'client'), ['surfaced', 'surfaced'])
  })

  test(`two faults of one reply, upstream, ${era}: both take effect`, async () => {
    for (const [tool, fates] of [
      ['reset_cut', ['surfaced', 'notReached']],
      ['drip_cut', ['surfaced', 'surfaced']],
    ] as const) {
      const { text } = await read(await send(era, 'upstream', tool))
      assert.match(text, /"reason":"upstream_disconnected"/)
      assert.ok(!(await fatesOf(tool, era, 'upstream')).includes('notApplicable'), `${fates.join()}`)
    }
  })

  for (const tool of ['late', 'held'])
    test(`a fault that breaks off a reply before its answer, client, ${era}, ${tool}: its fate is what the agent saw`, async () => {
      const { end } = await read(await send(era, 'client', tool))
      assert.equal(end, tool === 'late' ? 'ECONNRESET' : 'end')
      if (era === 'modern') assert.deepEqual(await fatesOf(tool, era, 'client'), ['surfaced'])
    })

  test(`a call that fails before a fault's time, client, ${era}: nothing has happened to its reply`, async () => {
    const { text } = await read(await send(era, 'client', 'fails'))
    assert.match(text, /"reason":"upstream_status"/)
    assert.deepEqual(await fatesOf('fails', era, 'client'), ['notApplicable'])
  })

  test(`an agent that does not read a shaped reply, ${era}, is cut off like any other`, async () => {
    const closed = async () =>
      (await gateway.metric('breakwater_unread_closed_total', 'cause="stalled"')) ?? 0
    const before = await closed()
    const socket = await send(era, 'client', 'huge')
    socket.pause().on('error', () => undefined)
    await until('the gateway has closed the connection', async () => (await closed()) > before)
    socket.destroy()
    await fatesOf('huge', era, 'client')
  })
}
