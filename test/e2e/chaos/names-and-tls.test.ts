import assert from 'node:assert/strict'
import { lookup } from 'node:dns/promises'
import { writeFile } from 'node:fs/promises'
import { createServer as createHttp, type RequestListener } from 'node:http'
import { createServer as createHttps } from 'node:https'
import type { AddressInfo, Server } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { after, before, test } from 'node:test'
import { authority, cert, elsewhereCert, expiredCert, key, otherKey } from '../../fixtures/tls.ts'
import { orBrokenOff } from '../../support/broken-off.ts'
import { until } from '../../support/until.ts'
import { armed, cleanUp, Gateway, type Json, newFolder } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'
import { callerAt, eras, fatesOf, kinds } from './alike.ts'

/*
 * Connections that fail before sending anything: an agent must not tell an injected failure from a real failure. `real`
 * has an unknown name or an untrusted certificate; `fake` would answer, but a fault hits the same tool.
 */

/** Never resolves (RFC 6761, section 6.4). */
const NOWHERE = 'breakwater.invalid'

/** An HTTP server that notes the method of each message. */
interface Noted {
  readonly url: string
  readonly methods: string[]
}

const open = new Set<Server & { closeAllConnections(): void }>()

async function serve(tls: object | undefined): Promise<Noted> {
  const methods: string[] = []
  const answer: RequestListener = (request, response) => {
    const taking = text(request).then((body) => {
      const message = (body === '' ? {} : JSON.parse(body)) as Json
      const { id, method } = message
      methods.push(String(method))
      const result = id === undefined ? undefined : resultOf(message)
      if (result === undefined) return response.writeHead(request.method === 'POST' ? 202 : 405).end()
      const json = JSON.stringify({ jsonrpc: '2.0', id, result })
      return response.writeHead(200, { 'content-type': 'application/json' }).end(json)
    })
    orBrokenOff(taking)
  }
  const server = tls === undefined ? createHttp(answer) : createHttps(tls, answer)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  open.add(server)
  const { port } = server.address() as AddressInfo
  return { url: `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${port}/mcp`, methods }
}

/** Returns the answers of a server with some tools, in both eras. */
function resultOf({ method, params }: Json): Json | undefined {
  const modern = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' }
  const hello = { capabilities: { tools: {} }, serverInfo: { name: 'raw', version: '1' } }
  const tools = ['work', 'late', 'slow', 'held']
  const results: Record<string, Json> = {
    initialize: { ...hello, protocolVersion: (params as Json | undefined)?.protocolVersion },
    'server/discover': { ...modern, ...hello, supportedVersions: ['2026-07-28'] },
    'tools/list': { ...modern, tools: tools.map((name) => ({ name, inputSchema: { type: 'object' } })) },
    'tools/call': { resultType: 'complete', content: [{ type: 'text', text: 'fine' }] },
    ping: {},
  }
  return results[String(method)]
}

interface Case {
  readonly type: 'conn.dns' | 'conn.tls'
  readonly fault: Json
  readonly real: Json
  /** The error text for the agent. */
  readonly words: RegExp
}

const ways = { legacy: { era: 'legacy' }, modern: { era: 'modern' }, sse: { type: 'sse' } } as const
const names = ['name', 'expired', 'own', 'elsewhere', 'handshake'] as const

let cases: Readonly<Record<(typeof names)[number], Case>>
let gateway: Gateway
let plain: Noted
let secure: Noted

before(async () => {
  const folder = await newFolder()
  const [ca, own] = [join(folder, 'ca.pem'), join(folder, 'own.pem')]
  await Promise.all([writeFile(ca, authority), writeFile(own, cert)])
  plain = await serve(undefined)
  secure = await serve({ cert, key })
  const real = {
    expired: await serve({ cert: expiredCert, key: otherKey }),
    elsewhere: await serve({ cert: elsewhereCert, key: otherKey }),
    // None of its ciphers fits its certificate.
    handshake: await serve({ cert, key, ciphers: 'ECDHE-RSA-AES128-GCM-SHA256', maxVersion: 'TLSv1.2' }),
  }
  cases = {
    name: {
      type: 'conn.dns',
      fault: { code: await resolverSays() },
      real: { url: `http://${NOWHERE}/mcp` },
      words: /cannot connect \((ENOTFOUND|EAI_AGAIN)\)/,
    },
    expired: {
      type: 'conn.tls',
      fault: { reason: 'expired' },
      real: { url: real.expired.url, tls: { ca } },
      words: /cannot connect \(CERT_HAS_EXPIRED\)/,
    },
    own: {
      type: 'conn.tls',
      fault: { reason: 'self_signed' },
      real: { url: secure.url },
      words: /cannot connect \(DEPTH_ZERO_SELF_SIGNED_CERT\)/,
    },
    elsewhere: {
      type: 'conn.tls',
      fault: { reason: 'wrong_host' },
      real: { url: real.elsewhere.url, tls: { ca } },
      words: /cannot connect \(ERR_TLS_CERT_ALTNAME_INVALID\)/,
    },
    handshake: {
      type: 'conn.tls',
      fault: { reason: 'handshake' },
      real: { url: real.handshake.url, tls: { rejectUnauthorized: false } },
      words: /cannot connect \(ERR_SSL_\S*HANDSHAKE_FAILURE\)/,
    },
  }
  const named = plain.url.replace('127.0.0.1', 'localhost')
  const servers: Record<string, Json> = {
    named: { url: named, era: 'legacy' },
    hasty: { url: named, era: 'legacy', timeouts: { connect: 300 } },
    careless: { url: secure.url, era: 'legacy', tls: { rejectUnauthorized: false } },
  }
  const faults: Json[] = []
  const aim = (name: string, server: string, tool: string, fault: Json) =>
    faults.push({ name, match: { server, tool }, ...fault })
  for (const name of names)
    for (const [way, entry] of Object.entries(ways)) {
      const { type, fault, real: really } = cases[name]
      const good = type === 'conn.dns' ? { url: named } : { url: secure.url, tls: { ca: own } }
      servers[`real_${name}_${way}`] = { ...really, ...entry }
      servers[`fake_${name}_${way}`] = { ...good, ...entry }
      aim(`${name}.${way}`, `fake_${name}_${way}`, 'work', { type, ...fault })
    }
  aim('late', 'named', 'late', { type: 'conn.dns', delay: 250, maxInjections: 1 })
  aim('slow', 'hasty', 'slow', { type: 'conn.dns', delay: '60s' })
  aim('held', 'named', 'held', { type: 'conn.dns', delay: '60s' })
  aim('careless', 'careless', 'work', { type: 'conn.tls' })
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers,
    policies: {
      defaults: {
        retry: { maxRetries: 2, base: 1, cap: 5, budget: { floor: 1_000, leastConcurrent: 1_000 } },
        // No probe would end the wait for a really lost server.
        gate: false,
      },
    },
    chaos: armed(faults),
  })
  await gateway.waitFor('up', 'named', 'hasty', 'careless')
})
after(async () => {
  await cleanUp()
  for (const server of open) {
    server.closeAllConnections()
    server.close()
  }
})

/** Without a network, a resolver may report another error than an unknown name. */
function resolverSays(): Promise<string> {
  return lookup(NOWHERE).then(
    () => assert.fail('the name resolves'),
    (error: NodeJS.ErrnoException) => error.code ?? '',
  )
}

const attemptsAt = (server: string) =>
  gateway.sums('breakwater_upstream_attempts_total', 'outcome', `server="${server}"`)

// From an agent without a session at the server: none could have opened a session at the real server.
for (const name of names)
  for (const way of Object.keys(ways))
    for (const era of eras)
      test(`${name}, ${way} server, ${era} agent: a real failure and an injected one look alike`, async () => {
        const servers = kinds.map((kind) => `${kind}_${name}_${way}`)
        const call = await callerAt(era, gateway.mcp())
        const seen = []
        for (const server of servers) seen.push([await call(`${server}__work`), await attemptsAt(server)])
        const { text: said } = seen[0]![0] as { text: string }
        assert.match(said, cases[name].words)
        assert.match(said, /"sent":false/)
        assert.deepEqual(seen[1], seen[0])
      })

/** Calls a tool of `named` or `hasty` in an open session. */
async function callIn(server: string, tool: string) {
  const client = await RawClient.open(gateway.mcp(server))
  await client.say('work')
  const before = performance.now()
  const response = await client.call(tool)
  const { message, data } = (response.error ?? {}) as { message?: string; data?: Json }
  return { response, message, data, tookMs: performance.now() - before }
}

test('conn.dns: a slow resolver delays the failing call', async () => {
  const { response, tookMs } = await callIn('named', 'late')
  assert.match(JSON.stringify(response), /fine/)
  assert.ok(tookMs >= 240, `${tookMs} ms`)
  assert.deepEqual(await fatesOf(gateway, 'late'), { delayed: 1 })
})

test('conn.dns: a lookup that lasts longer than timeouts.connect ends with it, and nothing was sent', async () => {
  const { message, data } = await callIn('hasty', 'slow')
  assert.match(message ?? '', /cannot connect \(UND_ERR_CONNECT_TIMEOUT\)/)
  assert.deepEqual([data?.sent, data?.attempts], [false, 3])
  assert.deepEqual(await fatesOf(gateway, 'slow'), { surfaced: 3 })
})

test('conn.tls: a server entry without certificate checks refuses no certificate', async () => {
  const client = await RawClient.open(gateway.mcp('careless'))
  assert.equal(await client.say('work'), 'fine')
  assert.deepEqual(await fatesOf(gateway, 'careless'), {})
})

test('conn.dns: stopping all faults releases held calls at once, unharmed', async () => {
  const held = callIn('named', 'held')
  await until('the call is held', async () => {
    const { body } = await gateway.admin<{ faults: { name: string; hits: number }[] }>('/admin/chaos')
    return body.faults.some(({ name, hits }) => name === 'held' && hits === 1)
  })
  assert.ok(!plain.methods.includes('held'))
  gateway.program.signal('SIGUSR2')
  const { response } = await held
  assert.match(JSON.stringify(response), /fine/)
})
