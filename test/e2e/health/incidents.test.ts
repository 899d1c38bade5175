import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { startReceiver } from '../../registry/health/receiver.ts'
import { until } from '../../support/until.ts'
import { cleanUp, Gateway, type GatewayParts, type Json, newFolder } from '../support/gateway.ts'
import { ProbedServer, sendJson } from '../support/probed-server.ts'
import { RawClient } from '../support/raw-client.ts'

after(async () => {
  await ProbedServer.endAll()
  await cleanUp()
})

interface Told {
  readonly id: string
  readonly server: string
  readonly reason: string
  readonly state: string
  readonly end?: string
  readonly timeToDetectMs: number
  readonly timeToRecoverMs?: number
  readonly gap?: Json
  readonly notices: Json
}

const incidentsOf = async (gateway: Gateway) =>
  (await gateway.admin<{ incidents: Told[] }>('/admin/incidents')).body.incidents

const EVERY_MS = 2_000
const SECRET = 'T0PSECRETPATH'

function parts(url: string, health: Json, more: Partial<GatewayParts> = {}): GatewayParts {
  return { servers: { search: { url, era: 'legacy', health: { every: EVERY_MS } } }, health, ...more }
}

// Concurrent, because the tests mostly wait and share no state.
describe('incidents', { concurrency: 4 }, () => {
  test('a killed server is detected within two intervals and told once, and so is its recovery, by the clock of a receiver that fails twice first', async (t) => {
    const server = await ProbedServer.start()
    const receiver = await startReceiver(t, [500, 503])
    const webhook = { type: 'json', name: 'ops', url: `${receiver.url}/${SECRET}` }
    const gateway = await Gateway.start(parts(server.url, { webhooks: [webhook] }))
    await gateway.waitFor('up', 'search')
    await until('the server was pinged', () => server.count('ping') > 0)
    const count = (name: string, labels: string) => gateway.metric(`breakwater_${name}`, labels)
    // Without the zeros, Prometheus would miss the first increase.
    assert.equal(await count('incidents_total', 'server="search"'), 0)
    assert.equal(await count('incident_detection_duration_seconds_count', 'reason="connection_refused"'), 0)

    const killedAt = Date.now()
    await server.kill()
    await receiver.came(1)
    const detectedAt = receiver.received[0]!.at
    assert.ok(detectedAt - killedAt <= 2 * EVERY_MS, `detected after ${detectedAt - killedAt} ms`)
    await receiver.came(3)
    await server.listen()
    await receiver.came(4)

    const [incident, ...others] = await incidentsOf(gateway)
    assert.deepEqual(others, [])
    assert.deepEqual(
      [incident?.reason, incident?.state, incident?.end],
      ['connection_refused', 'closed', 'recovered'],
    )
    assert.deepEqual(
      receiver.received.map(({ body, status }) => [body.event, status]),
      [
        ['incident.opened', 500],
        ['incident.opened', 503],
        ['incident.opened', 200],
        ['incident.recovered', 200],
      ],
    )
    // For the gateway, the incident begins with the first failed probe, at most an interval after the kill.
    const startedAt = Date.parse(String(receiver.received[3]!.body.incident?.startedAt))
    assert.ok(startedAt >= killedAt - 5 && startedAt <= killedAt + EVERY_MS + 500)

    await until('the delivery is noted', async () => {
      const { body } = await gateway.admin<Told>(`/admin/incidents/${incident!.id}`)
      return JSON.stringify(body.notices) === '{"ops":{"opened":"delivered","closed":"delivered"}}'
    })
    assert.equal(await count('notices_total', 'webhook="ops",result="delivered"'), 2)
    assert.equal(await count('notices_total', 'webhook="ops",result="retried"'), 2)
    assert.equal(await count('incidents_total', 'server="search"'), 1)
    assert.equal(await count('incident_detection_duration_seconds_count', 'reason="connection_refused"'), 1)
    assert.equal(await count('incident_recovery_duration_seconds_count', 'reason="connection_refused"'), 1)
    assert.equal(await count('incidents_open', 'server="search"'), 0)

    const { status } = await gateway.admin('/admin/incidents/none')
    assert.equal(status, 404)
    assert.equal((await gateway.admin('/admin/incidents?state=ajar')).status, 400)
    const config = JSON.stringify((await gateway.admin('/admin/config')).body)
    assert.match(config, /"ops"/)
    for (const text of [config, gateway.program.lines.join('\n'), JSON.stringify(await incidentsOf(gateway))])
      assert.doesNotMatch(text, new RegExp(SECRET))
  })

  test('times to detect and to recover are those of the clock of the receiver, where a call was there to see the kill', async (t) => {
    const server = await ProbedServer.start()
    const receiver = await startReceiver(t, [500, 503])
    const webhooks = [{ type: 'json', url: receiver.url }]
    const gateway = await Gateway.start(
      parts(server.url, { webhooks }, { policies: { defaults: { retry: false } } }),
    )
    await gateway.waitFor('up', 'search')
    const client = await RawClient.open(gateway.mcp('search'))
    assert.match(await client.say('check'), /42/)
    const killedAt = Date.now()
    await server.kill()
    await assert.rejects(client.say('check'))
    await receiver.came(3)
    await server.listen()
    await receiver.came(4)
    const [incident] = await incidentsOf(gateway)
    const near = (what: string, ms: number | undefined, byReceiver: number) =>
      assert.ok(Math.abs(ms! - byReceiver) < 1_000, `${what}: ${ms} ms, by the receiver ${byReceiver} ms`)
    near('to detect', incident?.timeToDetectMs, receiver.received[0]!.at - killedAt)
    near('to recover', incident?.timeToRecoverMs, receiver.received[3]!.at - killedAt)
  })

  test('an open incident of a gateway that was killed goes on in the next one, and ends with one notice and a gap', async (t) => {
    const server = await ProbedServer.start()
    const receiver = await startReceiver(t)
    const folder = await newFolder()
    const stateDir = join(folder, 'state')
    const given = parts(
      server.url,
      { webhooks: [{ type: 'pagerduty', routingKey: 'K3Y', url: receiver.url }] },
      { gateway: { stateDir } },
    )
    const first = await Gateway.start(given, { folder })
    await first.waitFor('up', 'search')
    await server.kill()
    await receiver.came(1)
    await until('the delivery is written to the file', async () =>
      (await readFile(join(stateDir, 'incidents.json'), 'utf8').catch(() => '')).includes(
        '"opened":"delivered"',
      ),
    )
    await first.program.kill()

    const second = await Gateway.start(given, { folder })
    await second.waitFor('down', 'search')
    const [open] = await incidentsOf(second)
    assert.equal(open?.state, 'open')
    await server.listen()
    await receiver.came(2)
    const [closed, ...others] = await incidentsOf(second)
    assert.deepEqual(others, [])
    assert.deepEqual([closed?.id, closed?.end], [open.id, 'recovered'])
    assert.ok(closed?.gap !== undefined)
    // After a restart the duration is only an upper bound, so no histogram counts it.
    const reason = 'reason="connection_refused"'
    assert.equal(await second.metric('breakwater_incident_recovery_duration_seconds_count', reason), 0)
    assert.deepEqual(
      receiver.received.map(({ body }) => [body.event_action, body.dedup_key]),
      [
        ['trigger', `breakwater:${open.id}`],
        ['resolve', `breakwater:${open.id}`],
      ],
    )
  })

  test('the next gateway sends the notices a killed gateway had not sent', async (t) => {
    const server = await ProbedServer.start()
    const receiver = await startReceiver(t, [500])
    const folder = await newFolder()
    const stateDir = join(folder, 'state')
    const given = parts(
      server.url,
      { webhooks: [{ type: 'slack', url: receiver.url }] },
      { gateway: { stateDir } },
    )
    const first = await Gateway.start(given, { folder })
    await first.waitFor('up', 'search')
    await server.kill()
    await receiver.came(1)
    await until('the due notice is written to the file', async () =>
      (await readFile(join(stateDir, 'incidents.json'), 'utf8').catch(() => '')).includes(
        '"opened":"pending"',
      ),
    )
    await first.program.kill()
    const taken = receiver.taken.length
    await server.listen()
    await Gateway.start(given, { folder })
    await until('both notices are told', () => receiver.taken.length >= 2)
    assert.ok(taken <= 1)
    assert.match(receiver.taken.at(-1)?.body.text ?? '', /has recovered after at most /)
    assert.match(receiver.taken.at(-2)?.body.text ?? '', /is failing, connection_refused/)
  })

  test('an incident that goes on is escalated once; one whose server leaves the config is closed', async (t) => {
    const server = await ProbedServer.start()
    const receiver = await startReceiver(t)
    const health = { webhooks: [{ type: 'json', url: receiver.url }], escalateAfter: '1s' }
    const given = parts(server.url, health)
    const gateway = await Gateway.start(given)
    await gateway.waitFor('up', 'search')
    await server.kill()
    await receiver.came(2)
    await gateway.reconfigure({ ...given, servers: {} })
    await receiver.came(3)
    assert.deepEqual(
      receiver.received.map(({ body }) => body.event),
      ['incident.opened', 'incident.escalated', 'incident.closed'],
    )
    assert.equal((await incidentsOf(gateway))[0]?.end, 'removed')
  })

  test('probes open no session of their own, and nothing that they find moves a breaker', async () => {
    const server = await ProbedServer.start()
    const servers = {
      search: {
        url: server.url,
        era: 'legacy',
        health: { every: '1s', tool: { name: 'check', expect: '42' } },
      },
    }
    const gateway = await Gateway.start({ servers })
    await gateway.waitFor('up', 'search')
    const client = await RawClient.open(gateway.mcp('search'))
    assert.match(await client.say('check'), /42/)
    // The wall clock is adjusted now and then, which moves `since` by less than a millisecond.
    const breakers = async () =>
      JSON.stringify((await gateway.admin('/admin/breakers')).body).replaceAll(/"since":[\d.]+/g, '"since"')
    const before = await breakers()
    server.answers.set('tools/call', (response, id) =>
      sendJson(response, { jsonrpc: '2.0', id, error: { code: -32603, message: 'broken' } }),
    )
    await until('the server was probed often', () => server.count('tools/call') > 8)
    await until('the server has an incident', async () => (await incidentsOf(gateway)).length === 1)
    assert.equal(await breakers(), before)
    // The agent's session, and the gateway's.
    assert.equal(server.count('initialize'), 2)
    assert.equal((await gateway.server('search'))?.sessions, 2)
  })

  test('a server of the modern era is probed in its own way, tool and all', async () => {
    const server = await ProbedServer.start()
    const health = { every: '1s', failures: 1, tool: { name: 'check', expect: '42' } }
    const gateway = await Gateway.start({ servers: { search: { url: server.url, era: 'modern', health } } })
    await until('the server was probed', () => server.count('tools/call') > 2)
    const shown = (await gateway.server('search'))?.health as { state: string; message?: string }
    assert.deepEqual([shown.state, shown.message], ['well', undefined])
    assert.equal(server.count('initialize'), 0)
    await server.kill()
    await until('the server has an incident', async () => (await incidentsOf(gateway)).length === 1)
    assert.equal((await incidentsOf(gateway))[0]?.reason, 'connection_refused')
  })

  test('without probes a server is asked for its lists only, and has no incidents', async () => {
    const server = await ProbedServer.start()
    const entry = { url: server.url, era: 'legacy', health: false, refresh: '1s' }
    const gateway = await Gateway.start({ servers: { search: entry } })
    await gateway.waitFor('up', 'search')
    await until('the lists of the server are fetched again', () => server.count('tools/list') > 1)
    assert.equal(server.count('ping'), 0)
    await server.kill()
    await gateway.waitFor('down', 'search')
    const { health, failureReason } = (await gateway.server('search')) ?? {}
    assert.deepEqual([health, failureReason], [false, 'connection_refused'])
    assert.deepEqual(await incidentsOf(gateway), [])
  })
})
