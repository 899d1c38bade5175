import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until } from '../support/until.ts'
import { postDeaf } from './support/deaf-client.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { heldBy, withProbe } from './support/memory.ts'
import { ModernClient } from './support/modern-client.ts'
import { RawClient } from './support/raw-client.ts'

const MIB = 1024 ** 2

/** Longest call beside a client that does not read, in milliseconds; a stuck call never ends. */
const PATIENCE_MS = 2_000

/** Maximum memory for a client that does not read, with garbage and socket buffers, in bytes. */
const MAX_GROWTH = 150 * MIB

const server = (era: string, more: Json = {}) => ({
  command: process.execPath,
  args: [fileURLToPath(new URL('../fixtures/flooding-server.js', import.meta.url)), era],
  era,
  ...more,
})

after(cleanUp)

/** Returns a process's resident memory, in bytes. */
function residentBytes(pid: number): number {
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kilobytes) * 1024
}

const flood = { name: 'flood', arguments: { count: 20_000, bytes: 4_096 } }

/** Floods an unread client, and calls beside it until the client is cut off. */
async function besideDeaf(gateway: Gateway, call: () => Promise<string>): Promise<number[]> {
  const before = residentBytes(gateway.program.pid)
  let peak = before
  const took: number[] = []
  const isCut = () => gateway.log.some(({ msg, reason }) => msg === 'call' && reason === 'overloaded')
  await until('the client is cut', async () => {
    const startedAt = performance.now()
    assert.equal(await call(), 'here')
    took.push(performance.now() - startedAt)
    peak = Math.max(peak, residentBytes(gateway.program.pid))
    return isCut()
  })
  assert.ok(peak - before < MAX_GROWTH, `${Math.round((peak - before) / MIB)} MiB more in memory`)
  return took
}

for (const era of ['legacy', 'modern']) {
  test(`a session that stops reading holds up no other one of a shared process of the ${era} era, and is cut`, async () => {
    const gateway = await Gateway.start({ servers: { shared: server(era) } })
    await gateway.waitFor('up', 'shared')
    const [deaf, other] = [
      await RawClient.open(gateway.mcp('shared')),
      await RawClient.open(gateway.mcp('shared')),
    ]
    const params = { ...flood, _meta: { progressToken: 'p' } }
    const stuck = await postDeaf(deaf.url, deaf.headers, {
      jsonrpc: '2.0',
      id: 'flood',
      method: 'tools/call',
      params,
    })
    const took = await besideDeaf(gateway, () => other.say('echo'))
    assert.ok(Math.max(...took) < PATIENCE_MS, `up to ${Math.max(...took)} ms`)
    await until('the server was told', async () => (await other.say('cancelled')) === '1')
    // The replies come in order, followed by the error.
    const text = await stuck.read('BW_OVERLOADED')
    assert.match(text, /the client reads too slowly/)
    assert.match(text, /"sent":true/)
    const steps = [...text.matchAll(/"progress":(\d+)/g)].map(([, step]) => Number(step))
    assert.deepEqual(
      steps,
      steps.map((_, index) => index + 1),
    )
    stuck.close()
  })
}

test('clients of the modern era that share a process of their own kind do not hold each other up', async () => {
  const gateway = await Gateway.start({ servers: { own: server('legacy', { sharing: 'per_session' }) } })
  await gateway.waitFor('up', 'own')
  const client = new ModernClient(gateway.mcp('own'))
  const request = client.request('tools/call', flood) as { params: { _meta: Json } }
  request.params._meta = { ...request.params._meta, progressToken: 'p' }
  const headers = {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': 'flood',
  }
  const stuck = await postDeaf(client.url, headers, request)
  const took = await besideDeaf(gateway, async () => {
    const { messages } = await client.call('echo')
    const { content } = messages[0]?.result as { content: { text: string }[] }
    return content[0]?.text ?? ''
  })
  assert.ok(Math.max(...took) < PATIENCE_MS, `up to ${Math.max(...took)} ms`)
  stuck.close()
})

const held = async (gateway: Gateway) => ({
  inUse: await heldBy(gateway),
  resident: residentBytes(gateway.program.pid),
})

for (const [title, sessions] of [
  ['forty sessions', 40],
  ['one session', 1],
] as const) {
  test(`forty replies of 10 MB that ${title} never read are not held, and others are served`, async (t) => {
    const gateway = await Gateway.start({ servers: { shared: server('legacy') } }, withProbe())
    await gateway.waitFor('up', 'shared')
    const url = gateway.mcp('shared')
    const clients = await Promise.all(Array.from({ length: sessions }, () => RawClient.open(url)))
    const other = await RawClient.open(url)
    await other.say('large', { bytes: 10 * MIB })
    const before = await held(gateway)
    const deaf = []
    for (let n = 0; n < 40; n++) {
      const { headers } = clients[n % sessions] as RawClient
      const params = { name: 'large', arguments: { bytes: 10 * MIB } }
      deaf.push(await postDeaf(url, headers, { jsonrpc: '2.0', id: n, method: 'tools/call', params }))
      assert.equal(await other.say('echo'), 'here')
    }
    const closed = async () => {
      const byCause = await gateway.sums('breakwater_unread_closed_total', 'cause', '')
      return Object.values(byCause).reduce((sum, count) => sum + count, 0)
    }
    await until('most connections were closed', async () => (await closed()) >= 30)
    const during = await held(gateway)
    const [inUse, resident] = [during.inUse - before.inUse, during.resident - before.resident]
    t.diagnostic(`${Math.round(inUse / MIB)} MiB more in use, ${Math.round(resident / MIB)} MiB resident`)
    assert.ok(inUse < 100 * MIB, `${Math.round(inUse / MIB)} MiB more in use`)
    assert.ok(resident < 300 * MIB, `${Math.round(resident / MIB)} MiB more resident`)
    // A client that reads gets everything, beside clients that do not.
    assert.equal((await other.say('large', { bytes: 10 * MIB })).length, 10 * MIB)
    for (const client of deaf) client.close()
  })
}
