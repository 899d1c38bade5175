import assert from 'node:assert/strict'
import { readdir, readFile, readlink, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { main } from '../support/main.ts'
import { until } from '../support/until.ts'
import { descendantsOf } from './support/family.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, configText, Gateway, newFolder } from './support/gateway.ts'
import { dataOf, keyedWrite } from './support/keyed-write.ts'
import { Program } from './support/program.ts'

let server: FlakyServer

before(async () => {
  server = await FlakyServer.start()
})
after(cleanUp)

/** Starts a gateway with this state folder, with the server up. */
async function start(stateDir: string): Promise<Gateway> {
  const gateway = await Gateway.start({ gateway: { stateDir }, servers: { flaky: { url: server.url } } })
  await gateway.waitFor('up', 'flaky')
  return gateway
}

/** Waits until the store has an answer: the agent gets its reply earlier. */
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

test("a stored answer survives the gateway's exit, clean or not, and is given again", async () => {
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

test('a gateway does not start on the folder of another one, and names both; once that is dead it does', async () => {
  const stateDir = join(await newFolder(), 'state')
  const first = await start(stateDir)
  const file = join(await newFolder(), 'second.json')
  const parts = { gateway: { stateDir }, servers: { flaky: { url: server.url } } }
  await writeFile(file, configText(parts))
  const second = new Program([main, 'start', '--config', file])
  assert.deepEqual(await second.ended, { code: 1, signal: null })
  const { pid } = first.program
  assert.match(second.lines.join(), new RegExp(`another gateway uses ${stateDir} \\(process ${pid}\\)`))
  assert.match(JSON.stringify(await keyedWrite(first.mcp('flaky'), 'order')), /written/)
  await end(first, 'SIGKILL')
  await start(stateDir)
})

test('a program that the gateway starts inherits none of its files, sockets and pipes', async () => {
  const stateDir = join(await newFolder(), 'state')
  // Opens no files, and waits for more input than it gets.
  const idle = { command: 'tail', args: ['-c', '1'] }
  const gateway = await Gateway.start({ gateway: { stateDir }, servers: { idle } })
  let idler: number | undefined
  await until('the program runs', async () => {
    for (const pid of descendantsOf(gateway.program.pid))
      if ((await readFile(`/proc/${pid}/cmdline`, 'utf8')).startsWith('tail\0')) idler = pid
    return idler !== undefined
  })
  const inherited = [...(await openIn(idler!))].filter(([descriptor]) => Number(descriptor) > 2)
  // Descriptors inherited from the test's own process do not count.
  const others = new Set((await openIn('self')).values())
  assert.deepEqual(
    inherited.filter(([, what]) => !others.has(what)),
    [],
  )
})

async function openIn(pid: number | 'self'): Promise<Map<string, string>> {
  const folder = `/proc/${pid}/fd`
  const open = (await readdir(folder)).map(async (descriptor) => {
    const what = await readlink(join(folder, descriptor)).catch(() => 'closed meanwhile')
    return [descriptor, what] as const
  })
  return new Map(await Promise.all(open))
}
