import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { after, test, type TestContext } from 'node:test'
import { closeServers } from '../e2e/support/raw-server.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { stdioToolbox } from '../e2e/support/toolbox.ts'
import { until } from '../support/until.ts'
import { heldServer } from './held-server.ts'
import { runGateway } from './running-gateway.ts'

after(closeServers)

/** A gateway that is told to end during a call. */
async function endingDuringCall(t: TestContext, drain: string) {
  const server = await heldServer('held')
  const running = await runGateway(t, {
    servers: { held: { url: server.url } },
    gateway: { drain },
  })
  await running.isUp('held')
  const client = await RawClient.open(running.mcp('held'))
  const underWay = client.call('hold')
  await server.holds(1)
  return { ...running, client, server, underWay }
}

const isRefused = async (base: string) => {
  const { hostname, port } = new URL(base)
  const socket = connect(Number(port), hostname)
  const how = await Promise.race([
    once(socket, 'connect').then(() => 'open' as const),
    once(socket, 'error').then(() => 'refused' as const),
  ]).catch(() => 'refused' as const)
  socket.destroy()
  return how === 'refused'
}

test('while the last calls end, no new request is accepted, operators can look, and the calls get their answers', async (t) => {
  const { gateway, admin, server, underWay } = await endingDuringCall(t, '1m')
  const closed = gateway.close()
  assert.equal(gateway.close(), closed, 'the gateway ends once, for any number of signals')
  assert.equal(await isRefused(gateway.data), true)
  const { sessions } = await admin<{ sessions: { inFlight: number }[] }>('/admin/sessions')
  assert.deepEqual(
    sessions.map(({ inFlight }) => inFlight),
    [1],
  )
  server.answer()
  assert.match(JSON.stringify((await underWay).result), /"held"/)
  await closed
  assert.equal(await isRefused(gateway.control), true)
})

test('a readiness check on an open connection hears that the gateway is stopping', async (t) => {
  const { gateway, server, underWay } = await endingDuringCall(t, '1m')
  const { hostname, port } = new URL(gateway.data)
  const socket = connect(Number(port), hostname).setEncoding('utf8')
  await once(socket, 'connect')
  let text = ''
  socket.on('data', (chunk: string) => (text += chunk))
  // A client that has begun its request is not cut off.
  socket.write(
    `GET /livez HTTP/1.1\r\nhost: ${hostname}\r\n\r\nGET /readyz HTTP/1.1\r\nhost: ${hostname}\r\n`,
  )
  await until('the first request is answered', () => text.includes('"ok"'))
  const closed = gateway.close()
  socket.write('\r\n')
  await until('the second request is answered, too', () => text.includes('"status":"stopping"'))
  assert.match(text, /HTTP\/1\.1 503/)
  socket.destroy()
  server.answer()
  await underWay
  await closed
})

test('a call that outlasts the drain hears of the end of the gateway, and its server hears of the cancellation', async (t) => {
  const { gateway, underWay, lines, server } = await endingDuringCall(t, '100ms')
  await gateway.close()
  const { data } = (await underWay).error as { data: { code: string; sent: boolean } }
  assert.deepEqual([data.code, data.sent], ['BW_SHUTTING_DOWN', true])
  assert.deepEqual(
    lines.map(({ msg }) => String(msg)).filter((msg) => /^(stopp|the drain)/.test(msg)),
    ['stopping: calls in flight may finish', 'the drain is over: ending calls in flight', 'stopped'],
  )
  assert.equal(server.server.of('notifications/cancelled').length, 1)
})

test('a config that comes into force while the last calls end leaves nothing behind either', async (t) => {
  const { gateway, live, reload, server, underWay, isUp } = await endingDuringCall(t, '1m')
  const closed = gateway.close()
  const servers = { held: { url: server.url }, late: stdioToolbox() }
  assert.equal((await reload({ servers, gateway: { drain: '1m' } })).ok, true)
  await isUp('late')
  const late = live.current.servers.get('late')!
  assert.equal(late.processes, 1)
  server.answer()
  assert.match(JSON.stringify((await underWay).result), /"held"/)
  await closed
  assert.equal(late.processes, 0)
})
