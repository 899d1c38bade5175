import assert from 'node:assert/strict'
import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, newFolder } from './support/gateway.ts'
import { dataOf, keyedWrite } from './support/keyed-write.ts'

let server: FlakyServer

before(async () => {
  server = await FlakyServer.start()
})
after(cleanUp)

/** Starts a gateway on a folder for its state, with the server up. */
async function start(stateDir: string): Promise<Gateway> {
  const gateway = await Gateway.start({ gateway: { stateDir }, servers: { flaky: { url: server.url } } })
  await gateway.waitFor('up', 'flaky')
  return gateway
}

/** Waits until the store has an answer: its agent is not kept waiting for that. */
async function written(stateDir: string): Promise<void> {
  const folder = join(stateDir, 'records')
  await until('the answer is on the disk', async () => {
    const logs = (await readdir(folder)).filter((name) => name.endsWith('.log'))
    const texts = await Promise.all(logs.map((name) => readFile(join(folder, name), 'latin1')))
    return texts.some((text) => /written \d/.test(text))
  })
}

async function end(gateway: Gateway, signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
  gateway.program.signal(signal)
  await gateway.program.ended
}

test('a write under way when the gateway is killed runs once, and whoever asks again is told that it may have run', async () => {
  const stateDir = join(await newFolder(), 'state')
  const count = await server.count('write')
  await server.behave({ write: { hang: true } })
  const first = await start(stateDir)
  const lost = keyedWrite(first.mcp('flaky'), 'order-1')
  await until('the server has the call', async () => (await server.count('write')) === count + 1)
  await end(first, 'SIGKILL')
  assert.equal(await lost, undefined)
  await server.behave({ write: { hang: false } })

  const second = await start(stateDir)
  for (let n = 0; n < 3; n++) {
    const again = await keyedWrite(second.mcp('flaky'), 'order-1')
    assert.equal(dataOf(again).sent, true)
    assert.match(JSON.stringify(again), /the gateway ended while the call was under way; .* may have run/)
  }
  assert.equal(await server.count('write'), count + 1)
  assert.match(JSON.stringify(await keyedWrite(second.mcp('flaky'), 'order-2')), /written/)
  assert.equal((await stat(join(stateDir, 'records'))).mode & 0o777, 0o700)
})

test('an answer that was there before the gateway ended is given again, however it ended', async () => {
  for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
    const stateDir = join(await newFolder(), 'state')
    const count = await server.count('write')
    const first = await start(stateDir)
    const answer = await keyedWrite(first.mcp('flaky'), 'order')
    assert.match(JSON.stringify(answer?.result), /written/)
    await written(stateDir)
    await end(first, signal)

    const second = await start(stateDir)
    assert.deepEqual((await keyedWrite(second.mcp('flaky'), 'order'))?.result, answer?.result)
    assert.equal(await server.count('write'), count + 1)
    await end(second, 'SIGKILL')
  }
})

test('a gateway whose store belongs to another one starts, serves calls with a key, and warns', async () => {
  const stateDir = join(await newFolder(), 'state')
  await start(stateDir)
  const second = await start(stateDir)
  assert.match(JSON.stringify(await keyedWrite(second.mcp('flaky'), 'order')), /written/)
  assert.ok(second.log.some(({ level, code }) => level === 40 && code === 'LEVEL_LOCKED'))
})
