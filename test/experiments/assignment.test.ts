import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assigner } from '../../src/experiments/assignment.ts'
import { experiment as schema } from '../../src/experiments/schema.ts'
import { type CallParts, newCall, TestCaller } from '../support/caller.ts'

const named = (more: object = {}) =>
  schema.parse({ name: 'canary', arms: { control: 'default', treatment: 'cautious' }, ...more })

/** A call of the tool `read` of server `search`, with this `_meta`. */
const call = (meta: object = {}, more: Partial<CallParts> = {}) =>
  newCall({ method: 'tools/call', server: 'search', params: { name: 'read', _meta: meta }, ...more })

const ofTask = (id: string, more: Partial<CallParts> = {}) => call({ 'dev.breakwater/intent': id }, more)

/** Returns the arm of each of `count` tasks. */
function armsOf(experiment: object, count: number): (string | undefined)[] {
  const assign = assigner(named(experiment))
  return Array.from({ length: count }, (_, index) => {
    const found = assign(ofTask(`task ${index}`))
    return typeof found === 'object' ? found.arm : found
  })
}

const countOf = (arms: readonly unknown[], arm: unknown) => arms.filter((one) => one === arm).length

test('a task stays in its arm, in every process, and half of them are in each', () => {
  const arms = armsOf({}, 10_000)
  assert.deepEqual(armsOf({}, 10_000), arms)
  // By the binomial distribution, ±2.6 % is five standard deviations.
  assert.ok(Math.abs(countOf(arms, 'canary/control') - 5_000) < 260)
  assert.equal(countOf(arms, 'canary/control') + countOf(arms, 'canary/treatment'), 10_000)
  // A pinned order: a change here would move tasks between arms of running experiments on an upgrade.
  const first = ['treatment', 'control', 'treatment', 'treatment', 'control', 'control']
  assert.deepEqual(
    arms.slice(0, 6),
    first.map((arm) => `canary/${arm}`),
  )
})

test('a new salt assigns all tasks anew', () => {
  const [one, other] = [armsOf({}, 2_000), armsOf({ salt: 'again' }, 2_000)]
  const same = one.filter((arm, index) => arm === other[index]).length
  assert.ok(Math.abs(same - 1_000) < 120, `${same} stay`)
})

test('a larger share moves no task from one arm to another', () => {
  const [some, more] = [armsOf({ share: 0.2 }, 5_000), armsOf({ share: 0.6 }, 5_000)]
  assert.ok(Math.abs(countOf(some, 'not_drawn') - 4_000) < 150)
  some.forEach((arm, index) => arm === 'not_drawn' || assert.equal(more[index], arm))
})

test('a split is kept', () => {
  const arms = armsOf({ split: { control: 0.9, treatment: 0.1 } }, 10_000)
  assert.ok(Math.abs(countOf(arms, 'canary/treatment') - 1_000) < 160)
})

test('calls that do not match, and requests other than tool calls, take no part', () => {
  const assign = assigner(named({ match: { server: 'sea*', tool: 'read', tenant: 'a' } }))
  assert.equal(typeof assign(ofTask('t', { tenant: 'a' })), 'object')
  assert.equal(assign(ofTask('t', { tenant: 'b' })), undefined)
  assert.equal(assign(ofTask('t', { tenant: 'a', server: 'other' })), undefined)
  assert.equal(assign(newCall({ method: 'tools/list', server: 'search', tenant: 'a' })), undefined)
})

test('a call without a task goes by its session, by its tenant, or takes no part', () => {
  const caller = new TestCaller({ era: 'legacy' })
  const nobody = new TestCaller({ era: 'modern' })
  const of = (fallback: string, by: TestCaller) =>
    assigner(named({ fallback }))(call({}, { caller: by, tenant: 'a' }))
  const session = of('session', caller)
  assert.ok(typeof session === 'object' && session.isFallback && /^session [\w-]{22}$/.test(session.unit))
  assert.ok(!session.unit.includes(caller.id))
  assert.deepEqual(of('session', nobody), of('tenant', caller))
  assert.ok(typeof of('tenant', caller) === 'object')
  assert.equal(of('exclude', caller), 'excluded')
})

test('a value of a header is assigned as a whole, and kept as a digest', () => {
  const assign = assigner(named({ assignBy: 'header', header: 'x-user', fallback: 'exclude' }))
  const found = assign(call({}, { inbound: { 'x-user': 'secret' } }))
  assert.ok(typeof found === 'object' && !found.isFallback && !found.unit.includes('secret'))
  assert.equal(assign(call()), 'excluded')
})

test('an agent may choose the arm of its tasks where the experiment says so', () => {
  const assign = assigner(named({ assignBy: 'agent' }))
  const chosen = (arm: unknown) => assign(call({ 'dev.breakwater/intent': 't', 'dev.breakwater/arm': arm }))
  const [one, other] = [chosen('control'), chosen('treatment')]
  assert.ok(typeof one === 'object' && typeof other === 'object')
  assert.deepEqual([one.arm, other.arm], ['canary/control', 'canary/treatment'])
  assert.equal(one.unit, other.unit)
  for (const none of [undefined, 'other', 7]) assert.equal(chosen(none), 'excluded')
  const ignored = assigner(named())(call({ 'dev.breakwater/intent': 't', 'dev.breakwater/arm': 'treatment' }))
  const usual = assigner(named())(ofTask('t'))
  assert.deepEqual(ignored, usual)
})
