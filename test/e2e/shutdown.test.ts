import assert from 'node:assert/strict'
import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { OtlpReceiver } from '../support/otlp-receiver.ts'
import { isAlive } from '../support/processes.ts'
import { until } from '../support/until.ts'
import { descendantsOf } from './support/family.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson } from './support/raw-server.ts'
import { HttpToolbox, stdioScript, stdioToolbox } from './support/toolbox.ts'

after(cleanUp)
after(closeServers)

/** A shell between the gateway and the server. */
const behindShell = {
  command: 'sh',
  args: ['-c', `exec 3<&0; "${process.execPath}" "${stdioScript}" <&3 & wait`],
}

const stubborn = stdioToolbox({ env: { TOOLBOX_STUBBORN: '1' } })

/** Leaves stubborn processes outside its group. */
const familyScript = fileURLToPath(new URL('../fixtures/family-server.js', import.meta.url))

const mute = { command: process.execPath, args: ['-e', 'setInterval(() => undefined, 1e6)'] }

/** Starts a gateway with processes of all sorts; returns the processes. */
async function crowded(drain: string) {
  const remote = await HttpToolbox.start()
  const servers = {
    remote: { url: remote.url },
    local: stdioToolbox(),
    private: stdioToolbox({ sharing: 'per_session' }),
    behindShell,
    stubborn,
  }
  const gateway = await Gateway.start({ gateway: { drain }, servers: { ...servers, mute } })
  await gateway.waitFor('up', ...Object.keys(servers))
  const client = await RawClient.open(gateway.mcp())
  await client.say('private__pid')
  const family = descendantsOf(gateway.program.pid)
  assert.ok(family.length >= 7, `${family.length} processes`)
  return { gateway, client, family, remote }
}

/** A killed process may remain for a moment: on a busy machine its exit has to be scheduled. */
async function allGone(family: readonly number[]): Promise<void> {
  await until('all processes are gone', () => !family.some(isAlive))
}

test('SIGTERM lets calls finish, ends every process and exits with 0', async () => {
  const { gateway, client, family } = await crowded('10s')
  const calls = [client.say('remote__sleep', { ms: 1_000 }), client.say('behindShell__sleep', { ms: 1_000 })]
  await gateway.waitForCalls(2)
  const startedAt = performance.now()
  gateway.program.signal('SIGTERM')
  assert.deepEqual(await Promise.all(calls), ['slept 1000 ms', 'slept 1000 ms'])
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
  const tookMs = performance.now() - startedAt
  assert.ok(tookMs < 8_000, `the shutdown waited for an abandoned handshake: ${tookMs} ms`)
  await allGone(family)
})

test('an agent that goes on calling does not hold up the drain: each reply is the last one of its connection', async () => {
  const server = await RawServer.start(({ message: { id, method } }, response) => {
    if (method !== 'tools/call') return false
    const answer = JSON.stringify({ jsonrpc: '2.0', id, result: { content: [] } })
    setTimeout(() => sendJson(response, answer), 50)
    return true
  })
  const servers = { one: { url: server.url, era: 'legacy' } }
  const gateway = await Gateway.start({ gateway: { drain: '30s' }, servers })
  await gateway.waitFor('up', 'one')
  let answered = 0
  let last = 0
  const loops = Array.from({ length: 4 }, async () => {
    const client = await RawClient.open(gateway.mcp('one'))
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const types = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
    const options = { agent, method: 'POST', headers: { ...client.headers, ...types } }
    for (let id = 0; ; id++) {
      const asking = request(client.url, options)
      asking.end(
        JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'any', arguments: {} } }),
      )
      const response = await once(asking, 'response').catch((error: NodeJS.ErrnoException) => error)
      // The gateway closes an idle connection when it stops, even with a call on the way.
      if (response instanceof Error) return assert.match(response.code ?? '', /ECONNREFUSED|ECONNRESET/)
      const [reply] = response as [IncomingMessage]
      assert.ok((JSON.parse(await text(reply)) as Json).result)
      answered++
      if (reply.headers.connection === 'close') last++
    }
  })
  await until('all agents call', () => answered >= 40)
  const startedAt = performance.now()
  gateway.program.signal('SIGTERM')
  await Promise.all(loops)
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
  const tookMs = performance.now() - startedAt
  assert.ok(tookMs < 20_000, `the drain took ${tookMs} ms`)
  assert.ok(last > 0 && last <= 4, `${last} last replies`)
})

test('calls that outlast the drain get an error that says that they may have run', async () => {
  const { gateway, client, family } = await crowded('200ms')
  const calls = [client.call('remote__sleep', { ms: 60_000 }), client.call('local__sleep', { ms: 60_000 })]
  await gateway.waitForCalls(2)
  gateway.program.signal('SIGTERM')
  for (const { error } of await Promise.all(calls)) {
    const { code, retryable, sent } = (error as { data: Json }).data
    assert.deepEqual({ code, retryable, sent }, { code: 'BW_SHUTTING_DOWN', retryable: false, sent: true })
  }
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
  await allGone(family)
})

test('calls of either era that hang, queue or wait for a retry hear that the gateway stops', async () => {
  const tools = ['hang', 'queue', 'fail']
  const server = await RawServer.start(({ message: { method, params } }, response) => {
    if (method !== 'tools/call') return false
    if ((params as Json).name === 'fail') response.writeHead(503).end()
    return true
  }, tools)
  const servers = { one: { url: server.url, era: 'legacy' } }
  const match = { server: 'one' }
  const overrides = [
    { match: { ...match, tool: 'queue' }, bulkhead: { concurrent: 2, maxWait: '1m' } },
    { match: { ...match, tool: 'fail' }, effect: 'read_only', retry: { base: '30s', cap: '30s' } },
  ]
  const policies = { defaults: { attemptTimeout: false, breaker: false }, overrides }
  const gateway = await Gateway.start({ gateway: { drain: '200ms' }, servers, policies })
  await gateway.waitFor('up', 'one')
  const modern = new ModernClient(gateway.mcp('one'))
  const legacy = await RawClient.open(gateway.mcp('one'))
  const called = ['hang', 'queue', 'queue', 'fail']
  const calls = called.flatMap((tool) => [
    legacy.call(tool),
    modern.call(tool).then(({ messages: [answer] }) => answer ?? {}),
  ])
  const arrived = (name: string) =>
    server.seen.filter(({ message: { params } }) => (params as Json | undefined)?.name === name).length
  const waiting = async () => {
    const { body } = await gateway.admin<{ bulkhead: { waiting: number }[] }>('/admin/budgets')
    return body.bulkhead.reduce((sum, row) => sum + row.waiting, 0)
  }
  await until('every call has reached its waiting place', async () => {
    const queued = await waiting()
    return queued > 1 && arrived('queue') + queued === 4 && arrived('hang') === 2 && arrived('fail') === 2
  })
  gateway.program.signal('SIGTERM')
  const told = (await Promise.all(calls)).map(({ error }) => (error as { data: Json }).data)
  assert.deepEqual(
    told.map(({ code }) => code),
    told.map(() => 'BW_SHUTTING_DOWN'),
  )
  assert.ok(told.filter(({ sent }) => sent === false).length > 1)
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
})

test('a second SIGTERM ends the gateway at once, and its processes with it', async () => {
  const { gateway, client, family } = await crowded('10m')
  const call = client.call('remote__sleep', { ms: 60_000 }).catch((error: unknown) => error)
  await gateway.waitForCalls(1)
  gateway.program.signal('SIGTERM')
  await gateway.program.line('it is stopping', (line) => (line.includes('stopping') ? true : undefined))
  gateway.program.signal('SIGTERM')
  const { code } = await gateway.program.ended
  assert.notEqual(code, 0)
  await allGone(family)
  assert.ok((await call) instanceof Error)
})

test('stubborn servers share one grace period, and the log names them meanwhile', async () => {
  const deaf = await RawServer.start(
    ({ verb, message }, response) => {
      if (verb === 'DELETE') return true
      if (message.method === 'initialize') response.setHeader('mcp-session-id', 'kept')
      return false
    },
    ['any'],
  )
  const servers = {
    stubborn,
    own: { ...stubborn, sharing: 'per_session' },
    family: { command: process.execPath, args: [familyScript] },
    deaf: { url: deaf.url, era: 'legacy' },
  }
  const gateway = await Gateway.start({ gateway: { drain: '100ms' }, servers })
  await gateway.waitFor('up', ...Object.keys(servers))
  const client = await RawClient.open(gateway.mcp())
  await client.say('own__pid')
  await client.call('deaf__any')
  const pids = JSON.parse(await client.say('family__pids')) as Record<string, number>
  const family = [...descendantsOf(gateway.program.pid), ...Object.values(pids)]
  gateway.program.signal('SIGTERM')
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
  await allGone(family)
  assert.equal(deaf.seen.filter(({ verb }) => verb === 'DELETE').length, 2, 'the sessions end at the server')
  const waits = gateway.log.flatMap(({ waitingFor }) => (waitingFor === undefined ? [] : [waitingFor]))
  const [first = []] = waits as string[][]
  for (const name of Object.keys(servers))
    assert.ok(
      first.some((what) => what.startsWith(`server ${name}`)),
      `${name} is not among ${first.join()}`,
    )
  const at = (message: string) => {
    const line = gateway.log.find(({ msg }) => String(msg).startsWith(message))
    return Date.parse(String(line?.time))
  }
  // In sequence they take 2.5 s each, and the family's leftovers the same again.
  const tookMs = at('stopped') - at('stopping')
  assert.ok(tookMs < 5_000, `servers were ended in sequence: ${tookMs} ms`)
})

test('a silent collector does not delay the shutdown, however long its exporter would wait', async (t) => {
  const receiver = await OtlpReceiver.start(t)
  receiver.behaviour = 'hangs'
  const remote = await HttpToolbox.start()
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_EXPORTER_OTLP_TIMEOUT: '600000' }
  const gateway = await Gateway.start({ servers: { remote: { url: remote.url } } }, { env })
  await gateway.waitFor('up', 'remote')
  const client = await RawClient.open(gateway.mcp('remote'))
  // A failure is always traced.
  await client.request('tools/call', { name: 'nobody' }).catch(() => undefined)
  gateway.program.signal('SIGTERM')
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
  assert.equal(receiver.paths.length > 0, true, 'the gateway sent nothing to the collector')
})

test('a reply that an agent is reading comes whole after SIGTERM', async () => {
  const large = JSON.stringify({ content: [{ type: 'text', text: 'x'.repeat(16 * 1024 ** 2 - 1_000) }] })
  const server = await RawServer.start(
    ({ message }, response) => {
      if (message.method !== 'tools/call') return false
      sendJson(response, `{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":${large}}`)
      return true
    },
    ['large'],
  )
  const gateway = await Gateway.start({ servers: { a: { url: server.url } } })
  await gateway.waitFor('up', 'a')
  const client = await RawClient.open(gateway.mcp('a'))
  const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'large', arguments: {} } }
  const { hostname, port } = new URL(gateway.data)
  const socket = connect(Number(port), hostname)
  const headers = { ...client.headers, host: 'localhost', 'content-type': 'application/json' }
  const body = JSON.stringify(call)
  const lines = Object.entries({ ...headers, accept: 'application/json, text/event-stream' })
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')
  socket.write(`POST /mcp/a HTTP/1.1\r\n${lines}content-length: ${body.length}\r\n\r\n${body}`)
  const [first] = (await once(socket, 'data')) as [Buffer]
  socket.pause()
  gateway.program.signal('SIGTERM')
  await until('the gateway begins to stop', () =>
    gateway.log.some(({ msg }) => String(msg).startsWith('stopping')),
  )
  let length = first.length
  socket.on('data', (chunk: Buffer) => (length += chunk.length)).resume()
  await once(socket, 'close')
  assert.ok(length > large.length, `${length} bytes`)
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
})
