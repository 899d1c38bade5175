import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { keyedWrite } from '../e2e/support/keyed-write.ts'
import { FlakyServer } from '../e2e/support/flaky.ts'
import { cleanUp, Gateway, newFolder } from '../e2e/support/gateway.ts'
import { ModernClient } from '../e2e/support/modern-client.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { stdioToolbox } from '../e2e/support/toolbox.ts'

const preload = fileURLToPath(new URL('../fixtures/wall-clock.js', import.meta.url))

const DAY_MS = 86_400_000

after(cleanUp)

/** Moves a gateway's wall clock; resolves after the jump. */
async function jump({ program: { child } }: Gateway, jumpMs: number): Promise<void> {
  child.send({ jumpMs })
  await once(child, 'message')
}

for (const [title, jumpMs] of [
  ['a year ahead', 365 * DAY_MS],
  ['a year back', -365 * DAY_MS],
] as const)
  test(`a wall clock jump ${title} ends no call, no session and no key, and delays nothing`, async () => {
    const flaky = await FlakyServer.start()
    const stateDir = await newFolder()
    const gateway = await Gateway.start(
      {
        gateway: { stateDir },
        servers: { local: stdioToolbox(), flaky: { url: flaky.url } },
        policies: { defaults: { deadline: { total: '20s' }, attemptTimeout: { timeout: '10s' } } },
        telemetry: { accessLog: { sample: 1 } },
      },
      { nodeArgs: ['--import', preload], stdio: ['ignore', 'pipe', 'pipe', 'ipc'] },
    )
    await gateway.waitFor('up', 'local', 'flaky')
    const client = await RawClient.open(gateway.mcp('local'))
    const modern = new ModernClient(gateway.mcp('local'))
    const stream = await client.listen()
    const first = await keyedWrite(gateway.mcp('flaky'), 'before')
    const slow = client.say('sleep', { ms: 600 })
    const slowModern = modern.call('sleep', { ms: 600 })
    await gateway.waitForCalls(1)

    await jump(gateway, jumpMs)
    assert.equal(await client.say('echo', { text: 'after' }), 'after')
    assert.equal((await modern.call('echo', { text: 'after' })).status, 200)
    assert.equal(await slow, 'slept 600 ms')
    assert.match((await slowModern).text, /slept 600 ms/)
    assert.deepEqual((await keyedWrite(gateway.mcp('flaky'), 'before'))?.result, first?.result)
    assert.equal(await flaky.count('write'), 1)
    // A key remembered after the jump works like a key from before.
    const second = await keyedWrite(gateway.mcp('flaky'), 'between')
    await jump(gateway, -jumpMs)
    assert.deepEqual((await keyedWrite(gateway.mcp('flaky'), 'between'))?.result, second?.result)
    assert.equal(await flaky.count('write'), 2)
    assert.equal(await client.say('echo', { text: 'back' }), 'back')
    assert.equal(stream.ended, false)

    for (const { durationMs, msg } of gateway.log)
      if (msg === 'call')
        assert.ok(Number(durationMs) >= 0 && Number(durationMs) < 20_000, String(durationMs))
    assert.equal((await gateway.server('local'))?.state, 'up')
    gateway.program.signal('SIGTERM')
    assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
  })
