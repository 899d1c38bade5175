import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { test } from 'node:test'
import { pathToFileURL } from 'node:url'
import type { Passage } from '../../bench/event-stamps.ts'
import { script } from '../../bench/middle.ts'
import { bound } from '../support/bound.ts'
import { until } from '../support/until.ts'

/** Relays every byte of a connection to another port. */
const relay = `
import { once } from 'node:events'
import { connect } from 'node:net'
const port = Number(process.argv[1])
const from = connect(port, '127.0.0.1')
await once(from, 'connect')
const to = connect(port, '127.0.0.1')
from.on('data', (chunk) => to.write(chunk))
`

test('each event that leaves a process has a passage, from its read to its write', async (t) => {
  if (process.platform !== 'linux') return t.skip('of Linux only')
  const sockets: Socket[] = []
  const server = createServer((socket) => sockets.push(socket.setEncoding('utf8'))).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const stamps = ['--import', pathToFileURL(script('../bench/event-stamps.js')).href]
  const args = [...stamps, '--input-type=module', '--eval', relay, String(port)]
  const child = spawn(process.execPath, args, {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: bound(),
  })
  t.after(async () => {
    child.kill()
    await once(child, 'close')
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  await until('both connections are there', () => sockets.length === 2)
  const [from, to] = sockets as [Socket, Socket]
  let out = ''
  to.on('data', (text) => (out += String(text)))
  const written = process.hrtime.bigint()
  from.write(`at ${written}; and more`)
  from.write('nothing of the kind')
  await until('both events have left the process', () => out.includes('more') && out.includes('kind'))
  const passages = async () => {
    child.send('passages')
    const [found] = (await once(child, 'message')) as [Passage[]]
    return found
  }
  const [passage, ...others] = await passages()
  // Only now: bytes may arrive here before the sender's write returns.
  const tookMs = Number(process.hrtime.bigint() - written) / 1e6
  assert.deepEqual(others, [])
  assert.ok(passage !== undefined && passage.waitedMs > 0 && passage.insideMs > 0 && passage.heldUpMs >= 0)
  assert.ok(passage.waitedMs + passage.insideMs < tookMs)
  assert.deepEqual(await passages(), [], 'a passage is reported once')
})
