import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp } from '../support/gateway.ts'
import { assertSound, playEverywhere, type Scene } from '../support/scene.ts'
import { closeClients } from '../support/sdk-client.ts'
import { everywhere, Stage, type Act, type Lane } from '../support/stage.ts'

const overStdio = ({ transport }: Lane) => transport === 'stdio'
const kill = { maxInjections: 1, signal: 'KILL' }

/** A process is started again a second after it has ended, the next time after two: in the order of these tests. */
const scene: Scene = {
  title: 'a call that only reads is masked by the new process and the retry',
  tool: 'slow_killed',
  type: 'proc.kill',
  fault: { maxInjections: 1 },
  on: overStdio,
  runs: 1,
  attempts: { transport_error: 2, returned: 1 },
  fates: { masked: 1 },
  takesMs: 900,
}

const writing: Act = {
  tool: 'write_slow_killed',
  type: 'proc.kill',
  fault: { ...kill, allowWrites: true },
  on: overStdio,
}

const lasting: Act = {
  tool: 'slow_gone',
  type: 'proc.kill',
  fault: { signal: 'KILL', restartAfter: '10m' },
  policies: { retry: false },
  on: overStdio,
}

/** Hit by none. */
const bystander: Act = {
  tool: 'slow_other',
  type: 'proc.kill',
  fault: { rate: 0 },
  policies: { retry: false },
  on: overStdio,
}

let stage: Stage

before(async () => {
  stage = await Stage.start([scene, writing, lasting, bystander])
})
after(async () => {
  await closeClients()
  await cleanUp()
})

test(`proc.kill: ${scene.title}`, () => playEverywhere(stage, scene))

test('proc.kill: all calls under way fail, and one that writes is not sent again', () =>
  everywhere(writing, async (lane) => {
    const [other, killed] = await Promise.all([
      stage.call(lane, 'slow_other'),
      stage.call(lane, 'write_slow_killed'),
    ])
    for (const seen of [other, killed]) {
      assert.equal(seen.reason, 'upstream_disconnected', `${lane.name} ${JSON.stringify(seen)}`)
      assert.match(seen.message ?? '', /ended by SIGKILL; it may have run/)
    }
    assert.deepEqual(await stage.attempts(lane, 'write_slow_killed'), { transport_error: 1 })
    assert.deepEqual(await stage.fates(lane, writing), { surfaced: 1 })
    assert.deepEqual(await stage.fates(lane, bystander), {})
    await until('there is a process again', async () => (await stage.call(lane, 'plain')).text !== undefined)
    assert.equal(await stage.runs(lane, 'write_slow_killed'), 0)
  }))

test('proc.kill: calls that it hits find no process for as long as it says, though there is one', () =>
  everywhere(lasting, async (lane) => {
    assert.equal((await stage.call(lane, 'slow_gone')).reason, 'upstream_disconnected')
    const { reason, data } = await stage.call(lane, 'slow_gone')
    assert.equal(reason, 'upstream_unavailable')
    assert.ok(Number(data.retryAfterMs) > 60_000)
    assert.deepEqual(await stage.fates(lane, lasting), { surfaced: 2 })
  }))

test('the engine had no part in it', () => assertSound(stage))
