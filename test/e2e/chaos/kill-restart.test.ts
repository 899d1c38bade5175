import assert from 'node:assert/strict'
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { until } from '../../support/until.ts'
import { FlakyServer } from '../support/flaky.ts'
import { cleanUp, Gateway, type GatewayParts, type Json, newFolder } from '../support/gateway.ts'
import { Program } from '../support/program.ts'
import { RawClient } from '../support/raw-client.ts'
import { main } from '../../support/main.ts'

let server: FlakyServer

before(async () => {
  server = await FlakyServer.start()
})
after(cleanUp)

interface Status {
  readonly state: string
  readonly by: string
  readonly why: string
  readonly refusal?: string
  readonly killRecordProblem?: string
  readonly faults: readonly {
    readonly armed: boolean
    readonly decided: number
    readonly awaitedLists: string[]
  }[]
}

const statusOf = async (gateway: Gateway) => (await gateway.admin<Status>('/admin/chaos')).body

/** Starts a gateway whose plan is armed at every start, in a persistent folder. */
async function start(folder: string, keys: Json = {}): Promise<Gateway> {
  const gateway = await Gateway.start(
    {
      gateway: { environment: 'test', ...keys },
      servers: { flaky: { url: server.url, trusted: true } },
      chaos: {
        enabled: true,
        persist: true,
        killFile: join(folder, 'stop'),
        faults: [{ name: 'gone', type: 'conn.refused', rate: 1, ttl: '10m', match: { tool: 'read' } }],
      },
    },
    { folder },
  )
  await gateway.waitFor('up', 'flaky')
  return gateway
}

async function restart(gateway: Gateway, signal: 'SIGKILL' | 'SIGTERM', keys: Json = {}): Promise<Gateway> {
  gateway.program.signal(signal)
  await gateway.program.ended
  return start(join(gateway.file, '..'), keys)
}

const ways: Readonly<Record<string, (gateway: Gateway, folder: string) => unknown>> = {
  'a signal': (gateway) => gateway.program.signal('SIGUSR2'),
  'the kill file': (_, folder) => writeFile(join(folder, 'stop'), ''),
  'the endpoint': (gateway) => gateway.post('/admin/chaos/kill', { by: 'test', why: 'enough' }),
  'the command': (gateway, folder) =>
    new Program([main, 'chaos', 'kill', '--control', gateway.control], { env: { XDG_RUNTIME_DIR: folder } })
      .ended,
}

/** Kills, restarts, and expects nothing armed until the kill is lifted, though the plan persists. */
async function survives(way: string, signal: 'SIGKILL' | 'SIGTERM', keys: Json = {}): Promise<Gateway> {
  const folder = await newFolder()
  const first = await start(folder, keys)
  assert.equal((await statusOf(first)).state, 'armed')
  await ways[way]!(first, folder)
  await until('everything is killed', async () => (await statusOf(first)).state === 'killed')
  const before = await statusOf(first)
  assert.equal(before.killRecordProblem, undefined)
  await rm(join(folder, 'stop'), { force: true })

  const second = await restart(first, signal, keys)
  await (await RawClient.open(second.mcp('flaky'))).say('read')
  const { state, by, why, refusal, faults } = await statusOf(second)
  assert.deepEqual([state, by, why], ['killed', before.by, `${before.why} (before this process started)`])
  assert.match(refusal ?? '', /kill switch is on; unkill first/)
  assert.deepEqual(
    faults.map(({ armed, decided }) => [armed, decided]),
    [[false, 0]],
  )
  assert.notEqual((await second.post('/admin/chaos/arm', {})).status, 200)
  assert.equal((await second.post('/admin/chaos/unkill', { by: 'test' })).status, 200)
  assert.equal((await statusOf(second)).state, 'disarmed')
  return second
}

// Concurrent, because the tests mostly wait and share no state.
describe('kills and restarts', { concurrency: 3 }, () => {
  for (const way of Object.keys(ways)) {
    test(`a kill by ${way} holds after kill -9 and a restart, until it is lifted`, async () => {
      const gateway = await survives(way, 'SIGKILL', { stateDir: join(await newFolder(), 'state') })
      await gateway.program.kill()
    })
  }

  test('a kill also holds after a clean exit, and without a state folder; once it is lifted, the plan persists again', async () => {
    const gateway = await restart(await survives('a signal', 'SIGTERM'), 'SIGTERM')
    assert.equal((await statusOf(gateway)).state, 'armed')
  })

  test('a persisted fault that hits the first listing says that it leaves calls alone, until the list is known', async () => {
    const faults = [{ name: 'gone', type: 'conn.refused', rate: 1, ttl: '10m' }]
    const parts: GatewayParts = {
      gateway: { environment: 'test' },
      servers: { flaky: { url: server.url, trusted: true } },
      policies: { defaults: { retry: false, gate: false } },
      chaos: { enabled: true, persist: true, faults },
    }
    const folder = await newFolder()
    const first = await Gateway.start({ ...parts, chaos: { faults } }, { folder })
    await first.waitFor('up', 'flaky')
    assert.equal((await statusOf(first)).state, 'disarmed')
    await first.program.kill()

    const gateway = await Gateway.start(parts, { folder })
    const client = await RawClient.open(gateway.mcp('flaky'))
    for (let i = 0; i < 3; i++) assert.match(await client.say('read'), /^read by/)
    const awaited = async () => (await statusOf(gateway)).faults.map(({ awaitedLists }) => awaitedLists)
    const words = 'gone spares calls of flaky, because the list of flaky is not known'
    assert.deepEqual(await awaited(), [['flaky']])
    assert.deepEqual(
      gateway.log.filter(({ msg }) => msg === 'chaos: list_unknown').map(({ why }) => why),
      [words],
    )
    for (const command of [['status'], ['chaos', 'status']]) {
      const env = { XDG_RUNTIME_DIR: folder }
      const program = new Program([main, ...command, '--control', gateway.control], { env })
      await program.ended
      assert.ok(program.lines.includes(words), program.lines.join('\n'))
    }
    const explained = await gateway.admin('/admin/chaos/explain?call=raw-1')
    assert.match(JSON.stringify(explained.body), /the server's list of tools is unknown/)

    // The fault stays armed, and lets the list pass.
    await gateway.reconfigure({ ...parts, chaos: { ...parts.chaos, mode: 'shadow' } })
    await gateway.waitFor('up', 'flaky')
    assert.equal((await statusOf(gateway)).state, 'armed')
    assert.deepEqual(await awaited(), [[]])
    await gateway.reconfigure(parts)
    await until('calls are hit', async () => (await client.call('read')).error !== undefined)
  })

  test('a kill file at the start keeps a persisted plan from being armed', async () => {
    const folder = await newFolder()
    await writeFile(join(folder, 'stop'), '')
    const gateway = await start(folder)
    const { body } = await gateway.admin<{ entries: { type: string }[] }>('/admin/chaos/journal')
    assert.deepEqual(
      body.entries.map(({ type }) => type),
      ['killed', 'refused'],
    )
  })
})
