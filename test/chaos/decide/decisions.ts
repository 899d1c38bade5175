import { setImmediate } from 'node:timers/promises'
import { injector } from '../../../src/chaos/firing/engine.ts'
import { derive, type Call, type Service } from '../../../src/mesh/call.ts'
import { newCall } from '../../support/caller.ts'
import { pick, seeded } from '../../support/random.ts'
import { answer, fault, rig } from '../rig.ts'

/** Ways to do the same work. None may change a decision. */
export interface Manner {
  /** Seed of the order of the calls. */
  readonly order?: number
  /** Calls at a time. */
  readonly concurrency?: number
  /** Faults that share nothing with the other faults. */
  readonly unrelated?: readonly object[]
  /** Index of the part of the work. */
  readonly part?: number
}

export const PARTS = 5

const plan = [
  fault('drifting', 'test.spoil', { rate: 0.3, maxConcurrent: 10_000 }),
  fault('failing', 'test.fail', { rate: 0.4, match: { tool: 'q*' }, maxConcurrent: 10_000 }),
  fault('lasting', 'test.fail', { rate: 0.2, sticky: true, maxConcurrent: 10_000 }),
  fault('seen', 'test.spoil', { rate: 0.1, side: 'client', maxConcurrent: 10_000 }),
  fault('some-tasks', 'test.spoil', {
    match: { tasks: 0.3, header: { 'x-numbered': 'y*' } },
    side: 'client',
    maxConcurrent: 10_000,
  }),
  fault('task-bursts', 'test.spoil', {
    rate: 0.3,
    when: { burst: { meanLength: 4, per: 'intent' } },
    match: { header: { 'x-numbered': 'y*' } },
    side: 'client',
    maxConcurrent: 10_000,
  }),
  fault('call-bursts', 'test.spoil', {
    rate: 0.3,
    when: { burst: { meanLength: 3, per: 'call' } },
    match: { header: { 'x-numbered': 'y*' } },
    side: 'client',
    maxConcurrent: 10_000,
  }),
]

/**
 * Three hundred calls of sixty tasks, some without a task, some equal except for their count, some with a step header.
 */
function work(part: number): Call[] {
  const random = seeded(1 + part)
  return Array.from({ length: 300 }, (_, index) => {
    const isNumbered = random() < 0.6
    const step = isNumbered ? { 'dev.breakwater/step': Math.floor(index / 60) } : {}
    const intent =
      isNumbered || random() < 0.5 ? { 'dev.breakwater/intent': `${part} task ${index % 60}` } : {}
    const params = {
      name: pick(random, ['query', 'quote', 'list']),
      arguments: { n: index % 7 },
      _meta: { ...intent, ...step },
    }
    return newCall({
      method: 'tools/call',
      params,
      server: pick(random, ['a', 'b']),
      tenant: pick(random, ['t', 'u']),
      inbound: isNumbered ? { 'x-numbered': 'yes' } : {},
    })
  })
}

function shuffled<T>(items: readonly T[], seed: number): T[] {
  const random = seeded(seed)
  const keyed = items.map((item) => [random(), item] as const)
  return keyed.sort(([a], [b]) => a - b).map(([, item]) => item)
}

/** Returns every decision about the work as sorted text. Failed attempts are retried twice. */
export async function decisions({
  order = 0,
  concurrency = 1,
  unrelated = [],
  part = 0,
}: Manner = {}): Promise<string[]> {
  const random = seeded(order + 1)
  const set = rig({
    server: async () => {
      for (let turns = Math.floor(random() * 4); turns > 0; turns--) await setImmediate()
      return answer()
    },
  })
  set.arm([...unrelated, ...plan], { seed: 42 })
  const retrying: Service = (call) =>
    set.upstream(call).then(async (outcome) => {
      for (let attempt = 2; outcome.kind === 'failed' && attempt <= 3; attempt++) {
        outcome = await set.upstream(derive(call, { attempt }))
      }
      return outcome
    })
  const send = injector('client', set.controller.engine)(retrying)
  const waiting = order === 0 ? work(part) : shuffled(work(part), order)
  const agents = Array.from({ length: concurrency }, async () => {
    for (let call = waiting.shift(); call !== undefined; call = waiting.shift()) await send(call)
  })
  await Promise.all(agents)
  const planned = new Set(plan.map(({ name }) => name))
  return set.controller.journal
    .decisions()
    .filter((entry) => planned.has(entry.fault))
    .map(({ fault, drawKey, attempt, step, u, decision, after, orderDependent }) =>
      JSON.stringify([fault, drawKey, attempt, step, u, decision, after, orderDependent]),
    )
    .sort()
}
