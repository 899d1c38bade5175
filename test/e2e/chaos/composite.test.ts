import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp } from '../support/gateway.ts'
import { assertSound, playEverywhere, type Scene } from '../support/scene.ts'
import { closeClients } from '../support/sdk-client.ts'
import { everywhere, lanes, Stage, type Act, type Lane, type Seen } from '../support/stage.ts'

const scenes: readonly Scene[] = [
  {
    title: 'the first attempts fail, so that one call becomes three, and the last one masks it',
    tool: 'storm',
    type: 'retry.storm',
    runs: 1,
    attempts: { transport_error: 2, returned: 1 },
    fates: { masked: 2 },
  },
  {
    title: 'without anything left in the retry budget one call stays one',
    tool: 'storm_budget',
    type: 'retry.storm',
    policies: { retry: { budget: { floor: 0, ratio: 0 } } },
    sees: { message: /503|cannot start/ },
    runs: 0,
    attempts: { transport_error: 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'the server gets ten calls for one, and the agent one answer, later',
    tool: 'fanout',
    type: 'fanout.amplify',
    // So many take more than a millisecond, which is what counts as a delay.
    fault: { factor: 10 },
    runs: 10,
    attempts: { returned: 1 },
    fates: { delayed: 1 },
  },
  {
    title: 'a server that is slow to start is waited for',
    tool: 'cold',
    type: 'cold_start',
    fault: { delay: 300 },
    runs: 1,
    attempts: { returned: 1 },
    fates: { delayed: 1 },
    takesMs: 300,
  },
  {
    title: 'a server that is slow to start is masked by the timeout and the retry, which finds it warmer',
    tool: 'cold_brief',
    type: 'cold_start',
    // Apart by more than a busy machine holds up the gateway, to which both might be over at once then.
    fault: { delay: 3_000 },
    policies: { attemptTimeout: { timeout: 2_000 } },
    runs: 1,
    attempts: { timeout: 1, returned: 1 },
    fates: { delayed: 2 },
    takesMs: 3_000,
  },
]

/** Longer than it takes to see that calls are held, on a busy machine too; in milliseconds. */
const HELD_MS = 1_500
const hold = { hold: HELD_MS }
const queue: Act = { tool: 'queue', type: 'hol.block', fault: hold }
const limited: Act = {
  tool: 'limited',
  type: 'hol.block',
  fault: hold,
  policies: { bulkhead: { concurrent: 2, perTool: 2, queue: 0 } },
}
const pool: Act = { tool: 'slow_pool', type: 'pool.exhaust' }
/** One and a half times as long as the tool takes, and longer than calls that are sent together may come apart. */
const brief: Act = {
  tool: 'slower_pool_brief',
  type: 'pool.exhaust',
  policies: { retry: false, attemptTimeout: { timeout: 2_250 } },
}
/** One fault for all lanes. */
const domain: Act = {
  tool: 'domain',
  type: 'failure_domain',
  fault: { match: { tool: 'domain' }, down: HELD_MS, up: HELD_MS },
  policies: { breaker: false },
  on: ({ name }) => name === 'http-legacy',
}
const warm: Act = { tool: 'warm', type: 'cold_start', fault: { delay: HELD_MS } }

let stage: Stage

before(async () => {
  stage = await Stage.start([...scenes, queue, limited, pool, brief, domain, warm])
})
after(async () => {
  await closeClients()
  await cleanUp()
})

const calls = (count: number, lane: Lane, { tool }: Act): Promise<Seen[]> =>
  Promise.all(Array.from({ length: count }, () => stage.call(lane, tool)))

const answers = (seen: readonly Seen[]) => seen.filter(({ text }) => text !== undefined).length

for (const scene of scenes) {
  test(`${scene.type}: ${scene.title}`, () => playEverywhere(stage, scene))
}

test('hol.block: all wait behind the first, while other tools of the server answer', () =>
  everywhere(queue, async (lane) => {
    let held = true
    const waiting = calls(4, lane, queue).finally(() => (held = false))
    await until('four calls stand in the queue', async () => (await stage.held(lane, queue)) === 4)
    assert.match((await stage.call(lane, 'plain')).text ?? '', /^plain/)
    assert.equal(held, true)
    const seen = await waiting
    assert.equal(answers(seen), 4)
    // The others may have come a little after the first.
    assert.ok(Math.max(...seen.map(({ tookMs }) => tookMs)) >= HELD_MS - 5, lane.name)
    assert.deepEqual(await stage.fates(lane, queue), { delayed: 4 })
  }))

test('hol.block: a bulkhead keeps the queue short', () =>
  everywhere(limited, async (lane) => {
    const seen = await calls(5, lane, limited)
    const rejected = seen.filter(({ reason }) => reason === 'bulkhead_full')
    assert.deepEqual([answers(seen), rejected.length], [2, 3], `${lane.name} ${JSON.stringify(seen)}`)
    assert.deepEqual(await stage.fates(lane, limited), { delayed: 2 })
    const labels = `server="${lane.name}"`
    const rejections = await stage.gateway.sums('breakwater_rejections_total', 'reason', labels)
    assert.equal(rejections.bulkhead_full, 3)
  }))

test('pool.exhaust: calls wait for the only slot, one after another', () =>
  everywhere(pool, async (lane) => {
    const seen = await calls(3, lane, pool)
    assert.equal(answers(seen), 3)
    const longest = Math.max(...seen.map(({ tookMs }) => tookMs))
    assert.ok(longest >= 595, `${lane.name}: three of 200 ms took ${longest} ms`)
    assert.deepEqual(await stage.fates(lane, pool), { masked: 1, delayed: 2 })
  }))

// That who gives up waiting is not sent is tested with a clock: here all give up in the moment in which the slot comes free.
test('pool.exhaust: a timeout ends the wait for a slot', () =>
  everywhere(brief, async (lane) => {
    const seen = await calls(6, lane, brief)
    const { timeout = 0, returned = 0 } = await stage.attempts(lane, brief.tool)
    assert.deepEqual([answers(seen), timeout + returned], [returned, 6], JSON.stringify(seen))
    assert.ok(timeout >= 4, `${lane.name}: ${timeout} ran out of time`)
    const { masked = 0, delayed = 0, ...others } = await stage.fates(lane, brief)
    assert.deepEqual([masked + delayed, others], [returned, { surfaced: timeout }])
  }))

test('failure_domain: all servers refuse at the same time, and are back at the same time', async () => {
  const all = () => Promise.all(lanes.map((lane) => stage.call(lane, domain.tool)))
  for (const { reason, message } of await all()) {
    assert.equal(reason, 'upstream_unavailable')
    assert.match(message ?? '', /it was not sent/)
  }
  await until('all are well again', async () => answers(await all()) === lanes.length)
  await until('all are gone again', async () => answers(await all()) === 0)
})

test('cold_start: whoever comes meanwhile waits as well, and once it is warm nobody', () =>
  everywhere(warm, async (lane) => {
    const first = stage.call(lane, warm.tool)
    await until('the first call waits', async () => (await stage.held(lane, warm)) === 1)
    await Promise.all([first, stage.call(lane, warm.tool)])
    assert.deepEqual(await stage.fates(lane, warm), { delayed: 2 })
    await calls(2, lane, warm)
    assert.deepEqual(await stage.fates(lane, warm), { delayed: 2 })
  }))

test('the engine had no part in it', () => assertSound(stage))
