import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Bursts } from '../../../src/chaos/decide/decide.ts'
import { fromMcpChaos } from '../../../src/chaos/plan/compat/index.ts'
import { derive } from '../../../src/mesh/call.ts'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'
import { newCall, TestCaller } from '../../support/caller.ts'
import { seeded } from '../../support/random.ts'
import { answer, fault, rig } from '../rig.ts'

/** Standard deviations that hold 99.9 % of a normal distribution. */
const Z = 3.2905

/** The condition of the study of mcp-chaos: 2 % of the calls, in bursts of 16. */
const study = { rate: 0.02, meanLength: 16 }

const FAN_OUT = 8

/** Share of the tasks of eight calls that meet a burst: 1 − the share that begins outside a burst and enters none. */
const taskRate =
  1 - (1 - study.rate) * (1 - study.rate / (study.meanLength * (1 - study.rate))) ** (FAN_OUT - 1)

const chains = ({ rate, meanLength } = study, seed = 7) =>
  new Bursts(createKeyedRandom(seed), 'fault/burst', rate, meanLength)

/** The `burst_error` of mcp-chaos, on a fault of the rig. */
function burstError(more: object = {}) {
  const { faults } = fromMcpChaos(
    { faults: [{ type: 'burst_error', rate: study.rate, burst_len: study.meanLength }] },
    { ttl: '15m' },
  )
  const { when, rate, maxConcurrent } = faults[0]!
  return fault('bursts', 'test.fail', { when, rate, maxConcurrent, ...more })
}

const callOf = (task: string, n: number, tool = 't') =>
  newCall({
    method: 'tools/call',
    params: { name: tool, arguments: { n }, _meta: { 'dev.breakwater/intent': task } },
    server: 'a',
  })

test('a burst_error of mean 16 at 2 % hits 2 % of the calls and 2.9 % of the tasks, however fast they come', async () => {
  const tasks = 2_000
  const set = rig()
  set.arm([burstError()], { seed: 42 })
  let calls = 0
  let failed = 0
  for (let task = 0; task < tasks; task++) {
    let hit = 0
    for (let n = 0; n < FAN_OUT; n++) {
      if ((await set.send(callOf(`task ${task}`, n))).kind === 'failed') hit++
    }
    calls += hit
    if (hit > 0) failed++
  }
  const spread = Z * Math.sqrt((taskRate * (1 - taskRate)) / tasks)
  assert.ok(Math.abs(failed / tasks - taskRate) < spread, `${failed} of ${tasks} tasks`)
  // The calls of a task are not independent of each other: at worst all eight are hit, or none.
  const rateSpread = Z * Math.sqrt((study.rate * (1 - study.rate)) / tasks)
  assert.ok(Math.abs(calls / (tasks * FAN_OUT) - study.rate) < rateSpread, `${calls} calls`)
})

test('over fifty seeds of 200 tasks the share of failed tasks is what the study measured', () => {
  const shares = Array.from({ length: 50 }, (_, seed) => {
    const bursts = chains(study, seed)
    const hit = Array.from({ length: 200 }, (_, task) =>
      Array.from({ length: FAN_OUT }, (_, index) => index).some(
        (index) => bursts.at({ per: 'call', of: `task ${task}`, index, attempt: 1 }).on,
      ),
    )
    return hit.filter(Boolean).length / hit.length
  })
  const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length
  const spread = Z * Math.sqrt((taskRate * (1 - taskRate)) / (200 * 50))
  assert.ok(Math.abs(mean - taskRate) < spread, `mean ${mean}`)
  assert.ok(Math.abs(mean - 0.035) < 0.027, `mean ${mean}`)
})

test('in one long task bursts have their configured mean, whole or fractional, and the rate is kept', () => {
  for (const meanLength of [16, 2.5, 1]) {
    const rate = 0.1
    const steps = 200_000
    const bursts = chains({ rate, meanLength })
    const lengths: number[] = []
    let run = 0
    let hit = 0
    for (let index = 0; index < steps; index++) {
      const { on } = bursts.at({ per: 'call', of: 'long', index, attempt: 1 })
      if (on) hit++
      if (on) run++
      else if (run > 0) {
        lengths.push(run)
        run = 0
      }
    }
    // Lengths of bursts are geometric.
    const mean = lengths.reduce((sum, length) => sum + length, 0) / lengths.length
    const spread = Z * Math.sqrt((meanLength * (meanLength - 1)) / lengths.length)
    // The state is drawn afresh every 4,096 steps, so two bursts may join.
    assert.ok(Math.abs(mean - meanLength) <= spread + 0.001, `mean ${mean} for ${meanLength}`)
    // Steps of a two-state chain are correlated by 1 − leave − enter, so fewer steps count as independent.
    const kept = 1 - 1 / meanLength - rate / (meanLength * (1 - rate))
    const counting = (steps * (1 - kept)) / (1 + kept)
    const rateSpread = Z * Math.sqrt((rate * (1 - rate)) / counting)
    assert.ok(Math.abs(hit / steps - rate) < rateSpread, `rate ${hit / steps} for ${meanLength}`)
  }
})

test('a chain begins in its long-term state: the first call of a task is hit as often as any', () => {
  const tasks = 20_000
  const bursts = chains()
  const share = (index: number) =>
    Array.from({ length: tasks }, (_, task) =>
      bursts.at({ per: 'call', of: String(task), index, attempt: 1 }),
    ).filter(({ on }) => on).length / tasks
  const spread = Z * Math.sqrt((study.rate * (1 - study.rate)) / tasks)
  for (const index of [0, 7]) assert.ok(Math.abs(share(index) - study.rate) < spread, `call ${index}`)
})

test('a retry most often lands in the burst that failed the first attempt, and moves no later call', () => {
  const bursts = chains({ rate: 0.2, meanLength: 16 })
  const plain = chains({ rate: 0.2, meanLength: 16 })
  let failed = 0
  let again = 0
  for (let task = 0; task < 20_000; task++) {
    const step = { per: 'call', of: String(task), index: 0 } as const
    if (bursts.at({ ...step, attempt: 1 }).on) {
      failed++
      if (bursts.at({ ...step, attempt: 2 }).on) again++
    }
    const next = { ...step, index: 1, attempt: 1 }
    assert.deepEqual(bursts.at(next), plain.at(next))
  }
  const stay = 1 - 1 / 16
  const spread = Z * Math.sqrt((stay * (1 - stay)) / failed)
  assert.ok(Math.abs(again / failed - stay) < spread, `${again} of ${failed}`)
})

/** Returns the attempts that were hit, of a hundred tasks of eight calls; failed attempts are retried twice. */
async function hits({
  order = 0,
  concurrency = 1,
  unrelated = [],
}: {
  order?: number
  concurrency?: number
  unrelated?: readonly object[]
}): Promise<readonly string[]> {
  const random = seeded(order + 1)
  const set = rig({
    server: async () => {
      for (let turns = Math.floor(random() * 4); turns > 0; turns--) await Promise.resolve()
      return answer()
    },
  })
  set.arm([...unrelated, burstError({ rate: 0.3 })], { seed: 42 })
  const tasks = Array.from({ length: 100 }, (_, task) => ({ at: random(), task: `task ${task}` }))
  if (order > 0) tasks.sort((a, b) => a.at - b.at)
  const hit: string[] = []
  const agents = Array.from({ length: concurrency }, async () => {
    for (let next = tasks.shift(); next !== undefined; next = tasks.shift()) {
      for (let n = 0; n < FAN_OUT; n++) {
        const call = callOf(next.task, n)
        for (let attempt = 1; attempt <= 3; attempt++) {
          const { kind } = await set.upstream(derive(call, { attempt }))
          if (kind !== 'failed') break
          hit.push(`${next.task} ${n} ${attempt}`)
        }
      }
    }
  })
  await Promise.all(agents)
  return hit.sort()
}

test('which calls of a task are hit depends on no other task, on no other fault and on no concurrency', async () => {
  const expected = await hits({})
  assert.ok(expected.length > 100)
  for (const order of [1, 2, 3]) {
    for (const concurrency of [1, 8, 64]) assert.deepEqual(await hits({ order, concurrency }), expected)
  }
  const unrelated = [
    fault('other', 'test.spoil', { when: { burst: { meanLength: 3, per: 'call' } }, rate: 0.5 }),
  ]
  assert.deepEqual(await hits({ unrelated }), expected)
})

test('tools that fail together share a chain, of which each call of a task is a step', async () => {
  const set = rig()
  const shared = { rate: 0.3, domain: 'pair' }
  set.arm([
    { ...burstError(shared), name: 'a', match: { tool: 'a' } },
    { ...burstError(shared), name: 'b', match: { tool: 'b' } },
  ])
  const both: boolean[] = []
  for (let n = 0; n < 400; n++)
    both.push((await set.send(callOf('task', n, n % 2 === 0 ? 'a' : 'b'))).kind === 'failed')
  const one = rig()
  one.arm([burstError(shared)])
  for (let n = 0; n < 400; n++)
    assert.equal((await one.send(callOf('task', n, 'c'))).kind === 'failed', both[n], `call ${n}`)
})

test('calls without a task step one after the other, for each session', async () => {
  const set = rig()
  set.arm([burstError({ rate: 0.5 })])
  const caller = new TestCaller()
  const send = (n: number) =>
    set
      .send(newCall({ method: 'tools/call', params: { name: 't', arguments: { n } }, server: 'a', caller }))
      .then(({ kind }) => kind === 'failed')
  const fates: boolean[] = []
  for (let n = 0; n < 200; n++) fates.push(await send(n))
  const changes = fates.filter((on, n) => n > 0 && on !== fates[n - 1]).length
  // Half of 200 calls in bursts of 16 begin and end about six times; alone they would change a hundred times.
  assert.ok(changes > 2 && changes < 40, `${changes} changes`)
})
