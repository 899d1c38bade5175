import assert from 'node:assert/strict'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { isAlive } from '../support/processes.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, newFolder, type Json } from './support/gateway.ts'
import { headersOf, ModernClient } from './support/modern-client.ts'
import { RawClient } from './support/raw-client.ts'
import { RawSocket } from './support/raw-socket.ts'
import { stdioToolbox } from './support/toolbox.ts'

const LIST_CHANGED = 'notifications/tools/list_changed'

/** Allows programs as added servers. */
const commands = { dynamicCommands: true }

after(cleanUp)

const remove = (gateway: Gateway, name: string) =>
  gateway.admin(`/admin/servers/${name}`, { method: 'DELETE' })

test('servers come and go by the API, for as long as the process lives', async () => {
  const gateway = await Gateway.start({ gateway: commands, servers: { fixed: stdioToolbox() } })
  await gateway.waitFor('up', 'fixed')
  const client = await RawClient.open(gateway.mcp())
  const stream = await client.listen()
  const fixedPid = await client.say('fixed__pid')

  const added = await gateway.post('/admin/servers', { name: 'guest', server: stdioToolbox() })
  assert.equal(added.status, 201)
  assert.equal(added.body.kept, false)
  assert.match(String(added.body.note), /ends with the process/)
  await gateway.waitFor('up', 'guest')
  assert.equal(await client.say('guest__echo', { text: 'hello' }), 'hello')
  assert.equal((await gateway.server('guest'))?.from, 'api')
  await until('clients are told', () => stream.messages(LIST_CHANGED).length > 0)

  const guestPid = Number(await client.say('guest__pid'))
  await gateway.reconfigure({ servers: { fixed: stdioToolbox() }, gateway: { ...commands, drain: '9s' } })
  assert.equal((await gateway.post('/admin/reload')).status, 200)
  const strange = await gateway.post('/admin/reload', { now: true })
  assert.match(JSON.stringify(strange.body), /unknown key .*"now.*; none is allowed/)
  assert.equal(Number(await client.say('guest__pid')), guestPid)

  const before = stream.messages(LIST_CHANGED).length
  assert.equal((await remove(gateway, 'guest')).status, 200)
  assert.equal(((await client.call('guest__echo')).error as Json).code, -32602)
  await until('the process of the server is gone', () => !isAlive(guestPid))
  await until('clients are told', () => stream.messages(LIST_CHANGED).length > before)
  assert.equal(await client.say('fixed__pid'), fixedPid)

  const add = async (name: string, server: unknown) =>
    (await gateway.post('/admin/servers', { name, server })).status
  assert.equal(await add('fixed', stdioToolbox()), 409)
  assert.equal(await add('two__parts', stdioToolbox()), 400)
  assert.equal(await add('nothing', {}), 400)
  assert.equal(await add('../etc', stdioToolbox()), 400)
  assert.equal((await remove(gateway, 'fixed')).status, 409)
  assert.equal((await remove(gateway, 'guest')).status, 404)
})

test('a server that cannot be read is refused with all that is wrong in it, and none of its secrets', async () => {
  const gateway = await Gateway.start({ servers: {} })
  const refused = async (body: unknown) => {
    const answer = await gateway.post('/admin/servers', body)
    assert.equal(answer.status, 400, JSON.stringify(answer.body))
    assert.equal(answer.body.error, 'the server cannot be used')
    return (answer.body.findings as { path: string; message: string }[]).map(({ path }) => path).sort()
  }
  assert.deepEqual(await refused(null), ['name', 'server'])
  assert.deepEqual(await refused({ server: stdioToolbox() }), ['name'])
  assert.deepEqual(await refused({ name: 'a', url: 'http://127.0.0.1:1/mcp' }), ['server', 'url'])
  assert.deepEqual(await refused({ name: '.a', server: { url: 'http://127.0.0.1:1/mcp', header: {} } }), [
    'name',
    'server.header',
  ])
  const server = { url: 'ftp://user:hunter2@host/', headers: { 'X-Key': ['hunter2'] } }
  const answer = await gateway.post('/admin/servers', { name: 'a', server })
  assert.equal(answer.status, 400)
  assert.doesNotMatch(JSON.stringify(answer.body), /hunter2/)
})

test('servers that were added outlive the process when there is a folder for them', async () => {
  const stateDir = join(await newFolder(), 'state')
  const parts = { gateway: { ...commands, stateDir }, servers: {} }
  const first = await Gateway.start(parts)
  for (const name of ['kept', 'dropped']) {
    const { status, body } = await first.post('/admin/servers', { name, server: stdioToolbox() })
    assert.equal(status, 201)
    assert.equal(body.kept, true)
  }
  assert.equal((await remove(first, 'dropped')).status, 200)
  // Its headers and environments may hold secrets.
  assert.equal((await stat(join(stateDir, 'servers.json'))).mode & 0o077, 0)
  first.program.signal('SIGTERM')
  await first.program.ended

  const second = await Gateway.start(parts)
  await second.waitFor('up', 'kept')
  assert.equal(await second.server('dropped'), undefined)
  const client = await RawClient.open(second.mcp())
  assert.equal(await client.say('kept__echo', { text: 'again' }), 'again')
})

test('requests that come in the turn in which their server is removed hear that there is none, whatever came first', async () => {
  const gateway = await Gateway.start({ gateway: commands, servers: { fixed: stdioToolbox() } })
  const echo = { name: 'echo', arguments: { text: 'here' } }
  const clientInfo = { name: 'raw', version: '1' }
  const initialize = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo }
  for (const place of [0, 3, 6, 9]) {
    await gateway.post('/admin/servers', { name: 'guest', server: stdioToolbox() })
    await gateway.waitFor('up', 'guest')
    const { headers } = await RawClient.open(gateway.mcp('guest'))
    const modern = new ModernClient(gateway.mcp('guest')).request('tools/call', echo)
    const requests = [1, 2, 3].flatMap((id): (readonly [Record<string, string>, Json])[] => [
      [headers, { jsonrpc: '2.0', id, method: 'tools/call', params: echo }],
      [headersOf(modern), modern],
      [{}, { jsonrpc: '2.0', id, method: 'initialize', params: initialize }],
    ])
    const sent = await Promise.all(
      requests.map(async ([own, message]) => {
        const body = JSON.stringify(message)
        const length = { 'content-length': String(Buffer.byteLength(body)) }
        return { socket: await RawSocket.open(gateway.mcp('guest'), { ...own, ...length }), body }
      }),
    )
    const operator = await RawSocket.open(gateway.control)
    // After this answer all connections are open.
    await gateway.server('guest')
    gateway.program.signal('SIGSTOP')
    const { host } = new URL(gateway.control)
    const removal = `DELETE /admin/servers/guest HTTP/1.1\r\nhost: ${host}\r\nauthorization: Bearer ${gateway.token}\r\n\r\n`
    for (const [index, { socket, body }] of sent.entries()) {
      if (index === place) await operator.write(removal)
      await socket.begin(body)
    }
    if (place === sent.length) await operator.write(removal)
    gateway.program.signal('SIGCONT')
    await until('all requests are answered', () =>
      [operator, ...sent.map(({ socket }) => socket)].every(({ text }) => text.endsWith('}')),
    )
    for (const { socket } of sent) {
      assert.match(socket.text, /Unknown server: guest|Session not found|"result"|cancelled/)
      socket.close()
    }
    operator.close()
  }
  assert.deepEqual(
    gateway.log.filter(({ level }) => Number(level) >= 50),
    [],
  )
})
