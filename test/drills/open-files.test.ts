import assert from 'node:assert/strict'
import { connect, type Socket } from 'node:net'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { bystand } from '../e2e/support/bystander.ts'
import { cleanUp, Gateway } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { HttpToolbox, stdioToolbox } from '../e2e/support/toolbox.ts'

/** Limit of open files for the gateway. It needs about 40 without traffic, and more while its modules load. */
const OPEN_FILES = 256

/** More connections than the file limit. */
const CONNECTIONS = 400

after(cleanUp)

test('a gateway without free file descriptors serves connected clients, and every client once descriptors are free again', async () => {
  const remote = await HttpToolbox.start()
  const gateway = await Gateway.start(
    { servers: { remote: { url: remote.url }, local: stdioToolbox() } },
    { openFiles: OPEN_FILES },
  )
  await gateway.waitFor('up', 'remote', 'local')
  const client = await RawClient.open(gateway.mcp())
  const pid = await client.say('local__pid')
  const call = async () => assert.equal(await client.say('local__echo', { text: 'here' }), 'here')
  await call()
  const sockets: Socket[] = []
  const port = Number(new URL(gateway.data).port)
  let refused = 0
  await bystand(gateway, call, async () => {
    for (let n = 0; n < CONNECTIONS; n++) {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', () => undefined)
      socket.once('close', () => refused++)
      sockets.push(socket)
    }
    await until('the gateway refuses connections', () => refused > 0)
    // A restart of the process fails now, because pipes need files too.
    process.kill(Number(pid), 'SIGKILL')
  }).catch(() => undefined)
  assert.ok(gateway.program.isRunning, gateway.program.lines.slice(-3).join('\n'))

  for (const socket of sockets) socket.destroy()
  await gateway.waitFor('up', 'remote', 'local')
  const other = await RawClient.open(gateway.mcp())
  assert.equal(await other.say('remote__echo', { text: 'there' }), 'there')
  assert.equal(await other.say('local__echo', { text: 'there' }), 'there')
  assert.equal(await client.say('local__echo', { text: 'here' }), 'here')
  gateway.program.signal('SIGTERM')
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
})
