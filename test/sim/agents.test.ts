import assert from 'node:assert/strict'
import { test } from 'node:test'
import { agents } from '../../src/sim/agents.ts'
import { byDefault, none, type PolicyChoice, withSettings } from '../../src/sim/policy-choices.ts'
import { simulate } from '../../src/sim/run.ts'
import { planned, sceneOf } from '../../src/sim/scene.ts'

const TASKS = 100

/** Returns how tasks end for agents of a kind, under one fault that hits a tenth of the calls. */
async function ends(kind: keyof typeof agents, fault: object, choice: PolicyChoice = none) {
  const faults = [planned({ name: 'fault', rate: 0.1, ...fault })]
  const { servers, stepsOf } = sceneOf(5)
  const workload = { tasks: TASKS, stepsOf, agent: agents[kind] }
  const tally = await simulate({ seed: 3, servers, choice, faults, workload })
  assert.equal(tally.tasks, TASKS)
  return tally.ends
}

test('without faults every task succeeds, with one call for each step', async () => {
  const { servers, stepsOf } = sceneOf(5)
  const workload = { tasks: TASKS, stepsOf, agent: agents.checking }
  const tally = await simulate({ seed: 3, servers, choice: byDefault, faults: [], workload })
  assert.deepEqual(tally.ends, { succeeded: TASKS, failed_safely: 0, failed_silently: 0 })
  assert.deepEqual([tally.calls, tally.attempts, tally.misled], [500, 500, 0])
})

test('an error fails tasks safely, and an agent that asks again gets past it', async () => {
  const naive = await ends('naive', { type: 'rpc.error' })
  assert.ok(naive.failed_safely > 20 && naive.failed_silently === 0, JSON.stringify(naive))
  const checking = await ends('checking', { type: 'rpc.error' })
  assert.ok(checking.succeeded > 95, JSON.stringify(checking))
})

test('an agent that gives a task up calls no further', async () => {
  const { servers, stepsOf } = sceneOf(5)
  const workload = { tasks: TASKS, stepsOf, agent: agents.naive }
  const faults = [planned({ name: 'fault', type: 'rpc.error', rate: 1 })]
  const tally = await simulate({ seed: 3, servers, choice: none, faults, workload })
  assert.deepEqual([tally.calls, tally.ends.failed_safely], [TASKS, TASKS])
})

test('an answer to another question deceives an agent that does not check the subject', async () => {
  const naive = await ends('naive', { type: 'result.wrong_entity' })
  assert.ok(naive.failed_silently > 20, JSON.stringify(naive))
  const checking = await ends('checking', { type: 'result.wrong_entity' })
  assert.equal(checking.failed_silently, 0, JSON.stringify(checking))
})

test('a wrong number where a number belongs deceives every agent', async () => {
  const unit = { type: 'result.drift', operators: [{ op: 'unit', path: '/value', factor: 1000 }] }
  for (const kind of ['naive', 'checking'] as const) {
    const found = await ends(kind, unit)
    assert.ok(found.failed_silently > 20, `${kind} ${JSON.stringify(found)}`)
  }
})

test('a text where a number belongs deceives a naive agent, unless verdicts are enforced', async () => {
  const text = { type: 'result.drift', operators: [{ op: 'type', path: '/value' }] }
  const reported = await ends('naive', text, byDefault)
  assert.ok(reported.failed_silently > 20, JSON.stringify(reported))
  const enforced = await ends('naive', text, withSettings('enforce', { verdict: { output: 'enforce' } }))
  assert.equal(enforced.failed_silently, 0, JSON.stringify(enforced))
})
