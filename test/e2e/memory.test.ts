import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { cleanUp, Gateway } from './support/gateway.ts'
import type { Program } from './support/program.ts'
import { RawClient } from './support/raw-client.ts'
import { HttpToolbox } from './support/toolbox.ts'

const SESSIONS = 200
const SERVERS = ['a', 'b', 'c', 'd', 'e']
const LIMIT_BYTES = 50 * 1024

const AT_ONCE = 10

const probe = fileURLToPath(new URL('../fixtures/heap-probe.js', import.meta.url))

after(cleanUp)

/** The heap that is in use once all garbage is collected. */
async function heapUsed({ child }: Program): Promise<number> {
  child.send('measure')
  const [{ heapUsed }] = (await once(child, 'message')) as [{ heapUsed: number }]
  return heapUsed
}

/** A session that has spoken with every server. */
async function openSession(gateway: Gateway): Promise<RawClient> {
  const client = await RawClient.open(gateway.mcp())
  for (const server of SERVERS) await client.say(`${server}__echo`, { text: 'hello' })
  return client
}

/** Runs a task so many times, a few at once: the sockets in use are none of what is measured. */
async function repeat<T>(count: number, task: (index: number) => Promise<T>): Promise<T[]> {
  const done: T[] = []
  while (done.length < count) {
    const batch = Array.from({ length: Math.min(AT_ONCE, count - done.length) }, (_, index) => index)
    done.push(...(await Promise.all(batch.map((index) => task(done.length + index)))))
  }
  return done
}

test('an idle session costs less than 50 KB of heap, and nothing once it is gone', async (t) => {
  const toolboxes = await Promise.all(SERVERS.map(() => HttpToolbox.start()))
  const servers = Object.fromEntries(SERVERS.map((name, index) => [name, { url: toolboxes[index]?.url }]))
  const gateway = await Gateway.start(
    { servers },
    { nodeArgs: ['--expose-gc', '--import', probe], stdio: ['ignore', 'pipe', 'pipe', 'ipc'] },
  )
  await gateway.waitFor('up', ...SERVERS)
  await repeat(AT_ONCE, async () => (await openSession(gateway)).leave())

  const before = await heapUsed(gateway.program)
  const clients = await repeat(SESSIONS, () => openSession(gateway))
  const during = await heapUsed(gateway.program)
  const { body } = await gateway.admin('/admin/sessions')
  assert.equal(body.open, SESSIONS)
  const each = (during - before) / SESSIONS
  await repeat(SESSIONS, async (index) => clients[index]?.leave())
  const rest = ((await heapUsed(gateway.program)) - before) / SESSIONS

  t.diagnostic(`${Math.round(each)} bytes a session, ${Math.round(rest)} after it`)
  assert.ok(each < LIMIT_BYTES, `${Math.round(each)} bytes a session`)
  assert.ok(rest < each / 2, `${Math.round(rest)} bytes remain of a session`)
})
