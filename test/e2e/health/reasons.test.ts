import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { after, describe, test } from 'node:test'
import { cert, key } from '../../fixtures/tls.ts'
import { until } from '../../support/until.ts'
import { FlakyServer } from '../support/flaky.ts'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { ProbedServer, sendJson } from '../support/probed-server.ts'

/* Each reason with a real cause. All servers are behind one gateway, which probes every second. */

after(async () => {
  await ProbedServer.endAll()
  await cleanUp()
})

interface Told {
  readonly server: string
  readonly reason: string
  readonly message: string
  readonly state: string
  readonly timeToRecoverMs?: number
}

const entry = (url: string, more: Json = {}, health: Json = {}): Json => ({
  url,
  era: 'legacy',
  timeouts: { discovery: '1s', connect: '1s' },
  health: { every: '1s', ...health },
  ...more,
})

async function incidentOf(gateway: Gateway, server: string): Promise<Told> {
  let found: Told | undefined
  await until(`${server} has an incident`, async () => {
    const { body } = await gateway.admin<{ incidents: Told[] }>(`/admin/incidents?server=${server}`)
    found = body.incidents.at(-1)
    return found !== undefined
  })
  return found as Told
}

async function closedPort(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return `http://127.0.0.1:${port}/mcp`
}

// One test waits for half a minute of health; the others run meanwhile, in sequence.
describe('reasons', { concurrency: 2 }, () => {
  test('a process that is killed is an incident though the next one comes up, and over when that one lasts', async () => {
    const script = `
    process.stdin.on('data', (chunk) => {
      for (const line of String(chunk).trim().split('\\n')) {
        const { id, method } = JSON.parse(line)
        const result = method === 'initialize'
          ? { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'x', version: '1' } }
          : method === 'tools/list' ? { tools: [{ name: 'pid' + process.pid, inputSchema: { type: 'object' } }] } : {}
        if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, result }))
      }
    })`
    const gateway = await Gateway.start({
      servers: { child: { command: process.execPath, args: ['-e', script], era: 'legacy' } },
    })
    await gateway.waitFor('up', 'child')
    const [tool] = (await gateway.server('child'))?.tools as { key: string }[]
    process.kill(Number(tool?.key.slice(3)), 'SIGKILL')
    const incident = await incidentOf(gateway, 'child')
    assert.deepEqual(
      [incident.reason, incident.message],
      ['process_exit', "the server's process was ended by SIGKILL"],
    )
    await gateway.waitFor('up', 'child')
    assert.equal((await incidentOf(gateway, 'child')).state, 'open')
    // The process has to stay healthy for half a minute.
    await until(
      'the server has recovered',
      async () => (await incidentOf(gateway, 'child')).state === 'closed',
      60_000,
    )
    assert.ok((await incidentOf(gateway, 'child')).timeToRecoverMs! < 20_000)
    assert.equal((await gateway.server('child'))?.failureReason, undefined)
  })

  test('each reason is told by a real cause of it', async () => {
    const [unauthorized, limited, garbage, wrong, slow, hung] = await Promise.all(
      Array.from({ length: 6 }, () => ProbedServer.start()),
    )
    const untrusted = await ProbedServer.start({ cert, key })
    const frozen = await FlakyServer.start()
    const tool = { tool: { name: 'check', expect: '42' } }
    const gateway = await Gateway.start({
      servers: {
        closed: entry(await closedPort()),
        nameless: entry('http://breakwater.invalid/mcp'),
        untrusted: entry(untrusted.url),
        frozen: entry(frozen.url),
        unauthorized: entry(unauthorized!.url),
        limited: entry(limited!.url),
        garbage: entry(garbage!.url),
        wrong: entry(wrong!.url, {}, tool),
        hung: entry(hung!.url, {}, tool),
        slow: entry(slow!.url),
        exiting: { command: process.execPath, args: ['-e', 'process.exit(3)'], health: { every: '1s' } },
      },
    })
    await gateway.waitFor('up', 'frozen', 'unauthorized', 'limited', 'garbage', 'wrong', 'hung', 'slow')

    frozen.program.signal('SIGSTOP')
    unauthorized!.answers.set('*', (response) => response.writeHead(401).end())
    // The server asks for an hour without requests, so there is no second probe.
    limited!.answers.set('*', (response) => response.writeHead(429, { 'retry-after': '3600' }).end())
    garbage!.answers.set('*', (response) =>
      response.writeHead(200, { 'content-type': 'text/html' }).end('<title>hello</title>'),
    )
    wrong!.answers.set('tools/call', (response, id) =>
      sendJson(response, { jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: '41' }] } }),
    )
    hung!.answers.set('tools/call', () => undefined)
    // A server can only count as slow once its usual pace is known.
    await until('the baseline of the slow server is known', async () => {
      const pace = (await gateway.server('slow'))?.health as { pace?: { ping?: { baselineMs?: number } } }
      return pace.pace?.ping?.baselineMs !== undefined
    })
    slow!.answers.set('ping', (response, id) => {
      void setTimeout(600).then(() => sendJson(response, { jsonrpc: '2.0', id, result: {} }))
    })

    const expected = {
      closed: ['connection_refused', /ECONNREFUSED/],
      nameless: ['dns', /ENOTFOUND|EAI_AGAIN/],
      untrusted: ['tls', /CERT/],
      frozen: ['timeout', /took longer than 1s/],
      unauthorized: ['auth', /401/],
      limited: ['rate_limited', /429/],
      garbage: ['protocol', /not a JSON-RPC response/],
      wrong: ['wrong_answer', /did not answer with "42"/],
      hung: ['timeout', /tool check: .*within 1s/],
      slow: ['slow', /ping took .* is usual/],
      exiting: ['process_exit', /exited with code 3/],
    } as const
    for (const [server, [reason, words]] of Object.entries(expected)) {
      const incident = await incidentOf(gateway, server)
      assert.equal(incident.reason, reason, server)
      assert.match(incident.message, words, server)
      assert.equal((await gateway.server(server))?.failureReason, reason)
      assert.equal(await gateway.metric('breakwater_incidents_open', `server="${server}"`), 1)
      const failures = `server="${server}",reason="${reason}"`
      assert.ok(((await gateway.metric('breakwater_probe_failures_total', failures)) ?? 0) >= 1, server)
    }
    frozen.program.signal('SIGCONT')

    const ready = await fetch(`${gateway.data}/readyz`)
    const { reasons, servers } = (await ready.json()) as { reasons: Json; servers: Json }
    assert.deepEqual([reasons.nameless, reasons.wrong], ['dns', 'wrong_answer'])
    // These servers answer, with whatever content: agents keep their tools.
    assert.deepEqual([servers.wrong, servers.slow, servers.hung, servers.closed], ['up', 'up', 'up', 'down'])
  })

  test('faults that hit what probes ask are seen as real ones are', async () => {
    const server = await ProbedServer.start(undefined, '127.0.0.1')
    const health = { tool: { name: 'check', expect: '42' } }
    const gateway = await Gateway.start({
      gateway: { environment: 'test' },
      servers: Object.fromEntries(
        ['refused', 'unauthorized', 'limited', 'nameless', 'late', 'bent', 'safe'].map((name) => [
          name,
          entry(
            server.url.replace('127.0.0.1', 'localhost'),
            { trusted: true, protected: name === 'safe' },
            health,
          ),
        ]),
      ),
      chaos: { enabled: true },
    })
    await gateway.waitFor('up', 'refused', 'unauthorized', 'limited', 'nameless', 'late', 'bent', 'safe')
    await until('the baseline of the late server is known', async () => {
      const pace = (await gateway.server('late'))?.health as { pace?: { tool?: { baselineMs?: number } } }
      return pace.pace?.tool?.baselineMs !== undefined
    })
    const faults: Record<string, readonly [Json, string]> = {
      refused: [{ type: 'conn.refused' }, 'connection_refused'],
      unauthorized: [{ type: 'http.status', status: 401 }, 'auth'],
      limited: [{ type: 'limit.429' }, 'rate_limited'],
      nameless: [{ type: 'conn.dns' }, 'dns'],
      late: [{ type: 'conn.latency', distribution: { kind: 'fixed', delay: '600ms' } }, 'slow'],
      bent: [{ type: 'result.is_error' }, 'wrong_answer'],
      safe: [{ type: 'conn.refused' }, ''],
    }
    for (const [target, [config]] of Object.entries(faults)) {
      const { status, body } = await gateway.post<Json>('/chaos/inject', {
        target: target === 'safe' ? '*afe' : target,
        config: { rate: 1, allowWrites: true, ...config },
      })
      assert.equal(status, target === 'safe' ? 400 : 200, JSON.stringify(body))
    }
    for (const [target, [, reason]] of Object.entries(faults)) {
      if (target === 'safe') continue
      assert.equal((await incidentOf(gateway, target)).reason, reason, target)
    }
    assert.equal((await gateway.server('safe'))?.failureReason, undefined)
    await gateway.post('/chaos/clear-all')
    await until('all servers have recovered', async () => {
      const { body } = await gateway.admin<{ total: number }>('/admin/incidents?state=open')
      return body.total === 0
    })
  })
})
