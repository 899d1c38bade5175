import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, test, type TestContext } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { heldBy, withProbe } from '../support/memory.ts'
import { RawClient } from '../support/raw-client.ts'
import { closeServers, RawServer, sendJson } from '../support/raw-server.ts'
import { stdioToolbox } from '../support/toolbox.ts'

const MIB = 1024 ** 2

after(cleanUp)
after(closeServers)

/** Starts a gateway with 512 MB of heap before a hostile server and an unrelated server. */
async function between(hostile: Json) {
  const servers = { quiet: stdioToolbox(), hostile }
  const gateway = await Gateway.start({ servers }, withProbe('--max-old-space-size=512'))
  await gateway.waitFor('up', 'quiet')
  const bystander = await RawClient.open(gateway.mcp('quiet'))
  const served = async () => assert.equal(await bystander.say('echo', { text: 'here' }), 'here')
  await served()
  return { gateway, served, held: () => heldBy(gateway) }
}

/** Checks that at most `most` more bytes are in use than before. */
function assertGrowth(t: TestContext, before: number, now: number, most: number): void {
  t.diagnostic(`${Math.round((now - before) / MIB)} MiB more in use`)
  assert.ok(now - before < most, `${Math.round((now - before) / MIB)} MiB more in use`)
}

/** A flag the server polls. */
const calm = () => ({ isOver: false })

test('endless pages of 15 MB are read up to the limit, the first part is offered, and others are served', async (t) => {
  let pages = 0
  const worst = { begins: false }
  const filler = JSON.stringify('x'.repeat(15 * MIB))
  const raw = await RawServer.start(({ message: { id, method } }, response) => {
    if (method !== 'tools/list') return false
    const name = worst.begins ? `page-${++pages}` : 'first'
    const tool = `{"name":"${name}","inputSchema":{"type":"object"},"description":${worst.begins ? filler : '""'}}`
    const small = `{"name":"${name}-small","inputSchema":{"type":"object"}}`
    const next = worst.begins ? `,"nextCursor":"${pages}"` : ''
    sendJson(
      response,
      `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{"tools":[${small},${tool}]${next}}}`,
    )
    return true
  })
  const { gateway, served, held } = await between({ url: raw.url, refresh: '1s', health: { every: '1s' } })
  await gateway.waitFor('up', 'hostile')
  const before = await held()
  worst.begins = true
  await until('the lists were cut', async () => {
    await served()
    return (await gateway.server('hostile'))?.cut !== undefined
  })
  // Repeatedly: no round leaves anything behind.
  const first = pages
  await until('more rounds', async () => {
    await served()
    return pages >= first + 6
  })
  const { cut, state, tools } = (await gateway.server('hostile')) as Json & { cut: Json; tools: Json[] }
  assert.deepEqual([cut, state], [{ tools: `more than ${16 * MIB} bytes` }, 'up'])
  assert.equal(tools.length, 3)
  assertGrowth(t, before, await held(), 64 * MIB)
  worst.begins = false
  await until('the list is whole again', async () => (await gateway.server('hostile'))?.cut === undefined)
  assertGrowth(t, before, await held(), 16 * MIB)
  assert.ok(gateway.log.some(({ msg }) => msg === 'a list is offered in part only'))
})

test('a small tool of a large page does not hold on to the page', async (t) => {
  const raw = await RawServer.start(({ message: { id, method } }, response) => {
    if (method !== 'tools/list') return false
    const tools = `{"name":"small","description":"a tool of which a slice would keep everything else"}`
    const page = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{"tools":[${tools}],"x":"${'x'.repeat(15 * MIB)}"}}`
    sendJson(response, page)
    return true
  })
  const servers = Object.fromEntries(Array.from({ length: 8 }, (_, n) => [`large${n}`, { url: raw.url }]))
  const { gateway, served, held } = await between({ url: raw.url })
  await gateway.waitFor('up', 'hostile')
  const before = await held()
  for (const [name, server] of Object.entries(servers)) {
    await gateway.post('/admin/servers', { name, server })
    await gateway.waitFor('up', name)
    await served()
  }
  assertGrowth(t, before, await held(), 24 * MIB)
})

test('the gateway reads a server only as fast as the server takes answers, and serves others meanwhile', async (t) => {
  const flood = calm()
  const held: ServerResponse[] = []
  let [isTaking, sent, taken] = [false, 0, 0]
  const raw = await RawServer.start(({ verb, message }, response) => {
    if (verb === 'GET') {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const more = () => {
        if (flood.isOver || response.destroyed) return void response.end()
        let text = ''
        for (let n = 0; n < 500; n++)
          text += `data: {"jsonrpc":"2.0","id":"${'i'.repeat(900)}${++sent}","method":"ping"}\n\n`
        if (response.write(text)) setImmediate(more)
        else response.once('drain', more)
      }
      more()
      return true
    }
    if (message.method !== undefined || message.id === undefined) return false
    if (!isTaking) return void held.push(response)
    taken++
    return void response.writeHead(202).end()
  })
  const stage = await between({ url: raw.url, era: 'legacy' })
  const before = await stage.held()
  await until('answers are on their way', () => held.length >= 4)
  for (let n = 0; n < 20; n++) await stage.served()
  t.diagnostic(`${held.length} answers under way, ${sent} pings sent`)
  // Four at a time; replies the server never takes are given up after a while.
  assert.ok(held.length <= 16, `${held.length} answers`)
  // At most as many as the system's buffers hold.
  assert.ok(sent < 60_000, `${sent} pings`)
  assertGrowth(t, before, await stage.held(), 16 * MIB)
  isTaking = true
  for (const response of held) response.writeHead(202).end()
  await until('the server takes answers again', async () => {
    await stage.served()
    return taken > 5_000
  })
  flood.isOver = true
  await stage.gateway.post('/admin/servers/hostile/restart')
  await stage.gateway.waitFor('up', 'hostile')
  await stage.served()
})

/** A program that answers its handshake, floods with pings, and stops reading. */
const deafPinger = `
process.stdin.once('data', (data) => {
  process.stdin.pause()
  const { id } = JSON.parse(String(data).split('\\n')[0])
  const result = { protocolVersion: '2025-11-25', capabilities: {}, serverInfo: { name: 'deaf', version: '1' } }
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\\n')
  let n = 0
  const more = () => {
    let text = ''
    for (let i = 0; i < 500; i++) text += JSON.stringify({ jsonrpc: '2.0', id: 'i'.repeat(900) + ++n, method: 'ping' }) + '\\n'
    if (n > 60000) { process.stderr.write('flooded\\n'); return setInterval(() => undefined, 1e6) }
    if (process.stdout.write(text)) setImmediate(more)
    else process.stdout.once('drain', more)
  }
  more()
})`

test('a process that pings and never reads costs little, and others are served', async (t) => {
  const { gateway, served, held } = await between({
    command: process.execPath,
    args: ['-e', deafPinger],
    era: 'legacy',
    timeouts: { discovery: '60s' },
  })
  const before = await held()
  await until('the flood is over', async () => {
    await served()
    return gateway.log.some(({ stderr }) => stderr === 'flooded')
  })
  assertGrowth(t, before, await held(), 48 * MIB)
})

for (const kind of ['JSON', 'an event'] as const)
  test(`a reply of half a MB that comes as ${kind} in chunks of one byte costs about its size`, async (t) => {
    const bytes = MIB / 2
    let letFinish: () => void = () => undefined
    const mayFinish = new Promise<void>((resolve) => (letFinish = resolve))
    const raw = await RawServer.start(
      ({ message: { id, method } }, response) => {
        if (method !== 'tools/call') return false
        const type = kind === 'JSON' ? 'application/json' : 'text/event-stream'
        const socket = response.socket
        socket?.write(`HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\n\r\n`)
        const chunked = (text: string) => [...text].map((each) => `1\r\n${each}\r\n`).join('')
        const head = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{"content":[{"type":"text","text":"`
        const tail = '"}]}}'
        socket?.write(chunked(kind === 'JSON' ? head : `event: message\ndata: ${head}`))
        const piece = '1\r\nx\r\n'.repeat(16_384)
        let left = bytes / 16_384
        const more = () => {
          if (left-- > 0)
            return void (socket?.write(piece) === true ? setImmediate(more) : socket?.once('drain', more))
          const finish = () => socket?.end(`${chunked(kind === 'JSON' ? tail : `${tail}\n\n`)}0\r\n\r\n`)
          void mayFinish.then(finish)
          isAll = true
        }
        more()
        return true
      },
      ['large'],
    )
    let isAll = false
    const { gateway, served, held } = await between({ url: raw.url, era: 'legacy' })
    await gateway.waitFor('up', 'hostile')
    const client = await RawClient.open(gateway.mcp('hostile'))
    const before = await held()
    const call = client.say('large')
    await until('everything is sent but the end', async () => {
      await served()
      return isAll
    })
    assertGrowth(t, before, await held(), 2 * bytes + 16 * MIB)
    letFinish()
    assert.equal((await call).length, bytes)
    await served()
    assertGrowth(t, before, await held(), 16 * MIB)
  })
