import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { RawSocket } from './support/raw-socket.ts'
import { stdioToolbox } from './support/toolbox.ts'
import { until } from '../support/until.ts'

// Invalid bodies, headers and requests are in test/exchanges/script.

const MIB = 1024 ** 2

let gateway: Gateway
let client: RawClient

before(async () => {
  gateway = await Gateway.start({ gateway: { maxBody: '64KiB' }, servers: { local: stdioToolbox() } })
  await gateway.waitFor('up', 'local')
  client = await RawClient.open(gateway.mcp())
})
after(async () => {
  assert.equal(await client.say('local__echo', { text: 'serving all the same' }), 'serving all the same')
  await cleanUp()
})

test('a client that is still sending a body which is refused reads why, and its connection goes on', async () => {
  const length = 4 * MIB
  for (let n = 0; n < 20; n++) {
    const socket = await RawSocket.open(gateway.mcp(), { 'content-length': String(length) })
    await socket.begin('x'.repeat(length / 2))
    await until('the body is refused', () => socket.text.startsWith('HTTP/1.1 413 '))
    await socket.write('x'.repeat(length / 2))
    await socket.write(`GET /livez HTTP/1.1\r\nhost: ${new URL(gateway.mcp()).host}\r\n\r\n`)
    await until('the next request is answered', () => socket.text.includes('HTTP/1.1 200 '))
    socket.close()
  }
})

test('a connection whose refused body never comes to its end is closed', async () => {
  const socket = await RawSocket.open(gateway.mcp(), { 'content-length': String(4 * MIB) })
  await socket.begin('x')
  await until('the connection is closed', () => socket.isClosed)
  assert.match(socket.text, /^HTTP\/1\.1 413 /)
})

test('a target that cannot be read is refused in the words of its plane, and not repeated as a whole', async () => {
  for (const path of ['/mcp/%ff', `/mcp/${'x'.repeat(300)}`]) {
    const data = await fetch(gateway.data + path, { method: 'POST', body: '{}' })
    for (const reply of [data, await fetch(gateway.control + path)]) {
      const said = await reply.text()
      assert.ok(reply.status >= 400 && reply.status < 500, said)
      assert.doesNotMatch(said, /FST_ERR|%ff/)
      assert.ok(said.length < 300, said)
    }
  }
})

test('too large a body to the chaos API is answered, however fast it comes', async () => {
  for (let count = 0; count < 8; count++)
    assert.equal((await gateway.post('/chaos/inject', 'x'.repeat(5_000_000))).status, 413)
})
