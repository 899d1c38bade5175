import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import { test } from 'node:test'
import { Decisions } from '../../src/commands/compare/evidence.ts'
import {
  type Agent,
  type Answer,
  type PlayOptions,
  playTwins,
  type Side,
  type ToolCall,
} from '../../src/load/twins.ts'
import { workload as schema } from '../../src/load/workload.ts'
import { assigner } from '../../src/experiments/assignment.ts'
import { experiment as experimentSchema } from '../../src/experiments/schema.ts'
import type { DecisionEntry } from '../../src/chaos/journal/entry.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { derive } from '../../src/mesh/call.ts'
import { newCall, TestCaller, TestChannel } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { answer, fault, rig } from '../chaos/rig.ts'

const orders = schema.parse({
  name: 'w',
  eras: ['legacy'],
  tasks: [
    {
      name: 'order',
      values: { item: { draw: ['keel', 'buoy'] }, size: { from: 1, to: 9 } },
      steps: [
        { tool: 'find', arguments: { item: '${values.item}' }, save: 'found' },
        { tool: 'price', arguments: { id: '${steps.found.id}', size: '${values.size}' }, needs: ['found'] },
        {
          tool: 'order',
          arguments: { id: '${steps.found.id}' },
          expect: { status: 'placed' },
          save: 'placed',
        },
      ],
    },
  ],
})

/** Plays tasks; agents answer through `answerTo`. */
function playing(
  answerTo: (call: ToolCall, side: Side) => Answer | Promise<Answer>,
  more: Partial<PlayOptions> = {},
) {
  const clock = new ManualClock()
  const stop = new Cancellation()
  const calls: { readonly side: Side; readonly call: ToolCall }[] = []
  const agent = (side: Side): Agent => ({
    async call(call) {
      calls.push({ side, call })
      return answerTo(call, side)
    },
  })
  const twins = playTwins({
    workload: orders,
    tasks: 3,
    seed: 1,
    concurrency: 1,
    arms: { control: 'steady', treatment: 'hasty' },
    clock,
    nameOf: ({ tool }) => `s__${tool}`,
    agentAt: (_, side) => agent(side),
    stop,
    ...more,
  })
  return { twins, calls, clock, stop }
}

const right = ({ name }: ToolCall): Answer => ({
  ok: true,
  result: name === 's__find' ? { id: 'a1' } : { status: 'placed' },
})

test('twins make the same calls: one name, the same arguments and steps, each with its own arm', async () => {
  const { twins, calls } = playing(right)
  const played = await twins
  assert.deepEqual(
    played.map(({ task, kind, control, treatment }) => [task, kind, control.outcome, treatment.outcome]),
    [0, 1, 2].map((n) => [`w-1-${n}`, 'order', 'succeeded', 'succeeded']),
  )
  const of = (side: Side) =>
    calls
      .filter((one) => one.side === side)
      .map(({ call: { name, arguments: args, meta } }) => {
        const { 'dev.breakwater/arm': arm, ...rest } = meta
        assert.equal(arm, side === 'control' ? 'steady' : 'hasty')
        return { name, args, rest }
      })
  assert.deepEqual(of('control'), of('treatment'))
  assert.deepEqual(of('control')[0]?.rest, { 'dev.breakwater/intent': 'w-1-0', 'dev.breakwater/step': 0 })
  assert.deepEqual(
    of('control').map(({ name, rest }) => [name, rest['dev.breakwater/step']]),
    [0, 1, 2].flatMap(() => [
      ['s__find', 0],
      ['s__price', 1],
      ['s__order', 2],
    ]),
  )
})

test('which twin comes first alternates', async () => {
  const { twins, calls } = playing(right, { tasks: 4 })
  await twins
  const order = calls.filter(({ call }) => call.name === 's__find').map(({ side }) => side)
  const [first, second] = ['control', 'treatment']
  assert.deepEqual(order, [first, second, second, first, first, second, second, first])
})

test('a step whose needs have failed is left out, and its task fails', async () => {
  const { twins } = playing((call, side) =>
    side === 'treatment' && call.name === 's__find' ? { ok: false, why: 'busy' } : right(call),
  )
  const [{ control, treatment } = assert.fail()] = await twins
  assert.deepEqual([control.calls, control.right, control.trouble], [3, 3, undefined])
  assert.deepEqual(
    [treatment.outcome, treatment.calls, treatment.right, treatment.trouble],
    ['failed', 1, 0, 'find: busy'],
  )
})

test('errors of tools and answers other than the expected ones are wrong', async () => {
  const answers = {
    control: { ok: true, result: { isError: true, content: [{ type: 'text', text: 'no' }] } },
    treatment: { ok: true, result: { status: 'lost' } },
  } as const
  const { twins } = playing((call, side) => (call.name === 's__order' ? answers[side] : right(call)))
  const [{ control, treatment } = assert.fail()] = await twins
  assert.deepEqual([control.outcome, control.trouble], ['failed', 'order: error: no'])
  assert.deepEqual([treatment.outcome, treatment.trouble], ['failed', 'order: not the expected status'])
})

test('a workload may say which steps decide', async () => {
  const [kind] = orders.tasks
  const lenient = { ...orders, tasks: [{ ...kind!, succeeds: ['placed'] }] }
  const fails = (call: ToolCall): Answer =>
    call.name === 's__price' ? { ok: false, why: 'busy' } : right(call)
  const [{ control } = assert.fail()] = await playing(fails, { workload: lenient }).twins
  assert.equal(control.outcome, 'succeeded')
  const [{ control: strict } = assert.fail()] = await playing(fails).twins
  assert.equal(strict.outcome, 'failed')
})

test('tasks begin at the rate of the workload, and agents think before they call', async () => {
  const [kind] = orders.tasks
  const steps = [{ ...kind!.steps[0]!, think: 200 }]
  const slow = { ...orders, arrivals: { calls: 2, perMs: 1_000 }, tasks: [{ ...kind!, steps }] }
  const starts: number[] = []
  const { twins, clock } = playing(
    (call) => {
      starts.push(clock.now())
      return right(call)
    },
    { workload: slow, tasks: 2, concurrency: 4 },
  )
  for (let ms = 0; ms < 2_000; ms += 100) {
    for (let turn = 0; turn < 5; turn++) await setImmediate()
    await clock.advance(100)
  }
  await twins
  assert.deepEqual(
    starts.map((at) => at - starts[0]!),
    [0, 500, 1_000, 1_500],
  )
})

test('a stop counts whole pairs and no half pairs', async () => {
  const { twins, stop } = playing(
    (call) => {
      if (call.meta['dev.breakwater/intent'] === 'w-1-1') stop.abort('enough')
      return right(call)
    },
    { tasks: 10 },
  )
  assert.deepEqual(
    (await twins).map(({ task }) => task),
    ['w-1-0'],
  )
})

const TWINS = 10_000

const plan = [
  fault('flaky', 'test.fail', { rate: 0.05, maxConcurrent: 10_000 }),
  fault('bursts', 'test.fail', {
    rate: 0.02,
    when: { burst: { meanLength: 3, per: 'intent' } },
    maxConcurrent: 10_000,
  }),
]

/** Decisions by fault, call and attempt: each draw and its result. */
class Found {
  readonly byCall = new Map<string, string>()
  readonly contradictions: string[] = []
  twice = 0
  hits = 0

  take({ fault, callKey, attempt, decision, because, u, orderDependent }: DecisionEntry): void {
    const key = `${fault} ${attempt} ${callKey}`
    const drawn = `${decision} ${because} ${u}`
    const twin = this.byCall.get(key)
    if (orderDependent || (twin !== undefined && twin !== drawn)) this.contradictions.push(key)
    if (twin !== undefined) this.twice++
    if (decision === 'injected') this.hits++
    this.byCall.set(key, drawn)
  }
}

/** Sends ten thousand twins through the fault engine, with two retries in one arm. Resolves to all decisions. */
async function decided(concurrency: number) {
  const set = rig({ server: () => setImmediate(answer({ id: 'a1', status: 'placed' })) })
  const decisions = new Decisions('w-42-')
  const found = new Found()
  assert.deepEqual(set.arm(plan, { seed: 42 }), { ok: true })
  set.controller.journal.sink = {
    append: (entry) => {
      if (entry.kind !== 'decision') return
      decisions.take(entry)
      found.take(entry)
    },
    close: () => Promise.resolve(),
  }
  const assign = assigner(
    experimentSchema.parse({
      name: 'compare',
      arms: { steady: 'default', hasty: 'none' },
      assignBy: 'agent',
      fallback: 'exclude',
    }),
  )
  const attempts = { control: 3, treatment: 1 }
  const shared = {
    server: 's',
    caller: new TestCaller(),
    channel: new TestChannel(),
    signal: new Cancellation(),
  }
  const agent = (side: Side): Agent => ({
    async call({ name, arguments: args, meta }) {
      const params = { name, arguments: args, _meta: meta }
      const call = newCall({ ...shared, method: 'tools/call', params })
      const assigned = assign(call)
      assert.ok(typeof assigned === 'object')
      call.record.arm = assigned.arm
      let outcome = await set.send(call)
      for (let attempt = 2; outcome.kind === 'failed' && attempt <= attempts[side]; attempt++)
        outcome = await set.upstream(derive(call, { attempt }))
      return outcome.kind === 'answered'
        ? { ok: true, result: { id: 'a1', status: 'placed' } }
        : { ok: false, why: outcome.kind }
    },
  })
  const twins = await playTwins({
    workload: orders,
    tasks: TWINS,
    seed: 42,
    concurrency,
    arms: { control: 'steady', treatment: 'hasty' },
    clock: set.clock,
    nameOf: ({ tool }) => tool,
    agentAt: (_, side) => agent(side),
    stop: new Cancellation(),
  })
  return { found, report: decisions.report(), twins }
}

test('each call of 10,000 twins meets the same faults in both arms, one at a time and 64 at a time', async () => {
  const [one, many] = [await decided(1), await decided(64)]
  for (const { found, report, twins } of [one, many]) {
    assert.equal(twins.length, TWINS)
    const { first, later, examples } = report
    assert.deepEqual([first.different, later.different, examples], [0, 0, []])
    assert.ok(first.twice > 40_000, `${first.twice}`)
    assert.ok(first.once > 1_000, 'calls made by one twin only')
    assert.ok(later.once > 1_000, 'retries, made by one arm only')
    assert.deepEqual([found.contradictions, found.twice], [[], first.twice])
    assert.ok(found.hits > 3_000, `${found.hits}`)
  }
  // Call by call, in any order.
  assert.equal(one.found.byCall.size, many.found.byCall.size)
  for (const [key, draw] of one.found.byCall) assert.equal(many.found.byCall.get(key), draw, key)
  const outcomes = ({ twins }: typeof one) =>
    twins.map(({ control, treatment }) => `${control.outcome} ${treatment.outcome}`)
  assert.deepEqual(outcomes(one), outcomes(many))
})
