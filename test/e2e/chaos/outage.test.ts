import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp, Gateway } from '../support/gateway.ts'
import { assertSound, playEverywhere, type Scene } from '../support/scene.ts'
import { closeClients } from '../support/sdk-client.ts'
import { everywhere, lanes, Stage, type Act, type Lane } from '../support/stage.ts'
import { stdioToolbox } from '../support/toolbox.ts'

const once = { maxInjections: 1 }
const overHttp = ({ transport }: Lane) => transport === 'http'

const scenes: readonly Scene[] = [
  {
    title: 'a status of the server is tried again, and then an error that names it',
    tool: 'status',
    type: 'http.status',
    fault: { body: '<h1>secret-trace</h1>' },
    on: overHttp,
    sees: { reason: 'upstream_status', code: 1502, message: /^[^<]*HTTP 503[^<]*$/ },
    runs: 0,
    attempts: { transport_error: 3 },
    fates: { surfaced: 3 },
  },
  {
    title: 'one status of the server is masked by the retry',
    tool: 'status_once',
    type: 'http.status',
    fault: once,
    on: overHttp,
    runs: 1,
    attempts: { transport_error: 1, returned: 1 },
    fates: { masked: 1 },
  },
  {
    title: 'a refusal is not tried again',
    tool: 'gone',
    type: 'http.status',
    fault: { ...once, status: 410 },
    on: overHttp,
    sees: { reason: 'upstream_refused', message: /HTTP 410/ },
    runs: 0,
    attempts: { transport_error: 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'the agent gets the status itself, whatever the server speaks',
    tool: 'agent_status',
    type: 'http.status',
    fault: { side: 'client', body: 'injected' },
    sees: { message: /Error POSTing to endpoint: injected/ },
    runs: 0,
    attempts: {},
    fates: { surfaced: 1 },
  },
]

const dead = { retry: false, breaker: { consecutive: 3, open: '10m', maxOpen: '10m' } }
const outages: readonly Act[] = [
  { tool: 'dead_status', type: 'http.status', on: overHttp, policies: dead },
  { tool: 'dead_error', type: 'rpc.error', policies: dead },
]
const refused: Act = { tool: 'dead_conn', type: 'conn.refused', policies: dead }

const flap: Act = {
  tool: 'flap',
  type: 'conn.flap',
  fault: { up: 500, down: 500 },
  policies: { retry: false, breaker: { consecutive: 2, open: 50, jitter: 0, maxOpen: 100 } },
}

let stage: Stage

before(async () => {
  stage = await Stage.start([...scenes, ...outages, refused, flap])
})
after(async () => {
  await closeClients()
  await cleanUp()
})

for (const scene of scenes) {
  test(`${scene.type}: ${scene.title}`, () => playEverywhere(stage, scene))
}

for (const act of outages) {
  test(`${act.type}: the breaker keeps calls away from what fails all the time`, () =>
    everywhere(act, async (lane) => {
      for (let i = 0; i < 3; i++) assert.notEqual((await stage.call(lane, act.tool)).reason, 'breaker_open')
      const { reason, data } = await stage.call(lane, act.tool)
      assert.deepEqual([reason, data.by, data.sent], ['breaker_open', 'breaker', false], lane.name)
      const failed = Object.values(await stage.attempts(lane, act.tool))
      assert.deepEqual(failed, [3], 'the fourth was no attempt')
      assert.deepEqual(await stage.fates(lane, act), { surfaced: 3 })
    }))
}

// It comes behind those outages: they look at breakers of the same servers, which it has found to be reachable again.
test('conn.refused: a breaker believes three times that a server is back that takes connections, and then no more', () =>
  everywhere(refused, async (lane) => {
    const { gateway } = stage
    const labels = `server="${lane.name}",tool="dead_conn"`
    const closed = async () =>
      (await gateway.sums('breakwater_breaker_transitions_total', 'state', labels)).closed ?? 0
    // A process that cannot be started has no address at which it could be found.
    const early = lane.transport === 'stdio' ? 0 : 3
    await until('it has believed it as often as it may', async () => {
      await stage.call(lane, refused.tool)
      return (await closed()) === early
    })
    await until(
      'it is open again',
      async () => (await stage.call(lane, refused.tool)).reason === 'breaker_open',
    )
    const attempts = await stage.attempts(lane, refused.tool)
    const { reason, data } = await stage.call(lane, refused.tool)
    assert.deepEqual([reason, data.by, data.sent], ['breaker_open', 'breaker', false], lane.name)
    assert.deepEqual(await stage.attempts(lane, refused.tool), attempts, 'the last one was no attempt')
    assert.deepEqual(Object.values(attempts), [3 * (1 + early)])
    assert.deepEqual(await stage.fates(lane, refused), { surfaced: 3 * (1 + early) })
  }))

test('conn.flap: a breaker opens when the server goes, tries it now and then, and closes when it is back', () =>
  everywhere(flap, async (lane) => {
    const reasons = new Set<unknown>()
    const call = async () => {
      const { reason, text } = await stage.call(lane, 'flap')
      reasons.add(reason)
      return text !== undefined
    }
    assert.equal(await call(), true, 'it begins up')
    await until('the breaker keeps calls away', async () => {
      await call()
      return reasons.has('breaker_open')
    })
    await until('calls get through again', call)
    assert.deepEqual([...reasons].sort(), ['breaker_open', 'upstream_unavailable', undefined])
    const labels = `server="${lane.name}",tool="flap"`
    const states = await stage.gateway.sums('breakwater_breaker_transitions_total', 'state', labels)
    for (const state of ['open', 'half_open', 'closed']) assert.ok((states[state] ?? 0) > 0, state)
    const { surfaced = 0, ...others } = await stage.fates(lane, flap)
    assert.ok(surfaced >= 2)
    assert.deepEqual(others, {}, 'what got through while it was up was not hit')
  }))

test('a fault where it cannot be is an error of the plan, which says what to use instead', async () => {
  const start = (type: string, servers: Record<string, unknown>) => {
    const faults = [{ name: 'a', type, rate: 1, ttl: '1m', match: { server: 's' } }]
    const chaos = { enabled: true, persist: true, faults }
    return Gateway.start({ gateway: { environment: 'test' }, servers, chaos })
  }
  await assert.rejects(
    start('http.status', { s: stdioToolbox() }),
    /stdio has no HTTP status; see rpc\.error/,
  )
  const remote = { s: { url: 'http://127.0.0.1:9/mcp' } }
  await assert.rejects(start('proc.kill', remote), /there is no process behind http; see conn\.refused/)
})

test('tools without a fault were not touched, and the engine had no part in it', async () => {
  for (const lane of lanes) assert.match((await stage.call(lane, 'plain')).text ?? '', /^plain/)
  await assertSound(stage)
})
