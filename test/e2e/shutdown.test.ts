import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { OtlpReceiver } from '../support/otlp-receiver.ts'
import { isAlive } from '../support/processes.ts'
import { until } from '../support/until.ts'
import { descendantsOf } from './support/family.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { HttpToolbox, stdioScript, stdioToolbox } from './support/toolbox.ts'

after(cleanUp)

/** A shell that stays between the gateway and the server. */
const behindShell = {
  command: 'sh',
  args: ['-c', `exec 3<&0; "${process.execPath}" "${stdioScript}" <&3 & wait`],
}

const stubborn = stdioToolbox({ env: { TOOLBOX_STUBBORN: '1' } })

/** Never answers its handshake. */
const mute = { command: process.execPath, args: ['-e', 'setInterval(() => undefined, 1e6)'] }

/** A gateway with processes of all sorts under it, and those processes. */
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
  assert.ok(tookMs < 8_000, `it waited for a handshake that nobody needs any more: ${tookMs} ms`)
  assert.deepEqual(family.filter(isAlive), [])
})

test('calls that outlast the drain get an error that says to try again', async () => {
  const { gateway, client, family } = await crowded('200ms')
  const calls = [client.call('remote__sleep', { ms: 60_000 }), client.call('local__sleep', { ms: 60_000 })]
  await gateway.waitForCalls(2)
  gateway.program.signal('SIGTERM')
  for (const { error } of await Promise.all(calls)) {
    const { code, retryable, sent } = (error as { data: Json }).data
    assert.deepEqual({ code, retryable, sent }, { code: 'BW_SHUTTING_DOWN', retryable: true, sent: true })
  }
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
  assert.deepEqual(family.filter(isAlive), [])
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

test('a collector that does not answer holds nobody up, however long its exporter would wait', async (t) => {
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
  assert.equal(receiver.paths.length > 0, true, 'nothing was ever sent')
})
