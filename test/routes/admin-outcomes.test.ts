import assert from 'node:assert/strict'
import { test } from 'node:test'
import { registerAdminOutcomes } from '../../src/routes/admin.ts'
import { failed } from '../policies/breaker/rig.ts'
import { toolCall } from '../support/caller.ts'
import { intentsRig } from '../telemetry/intents/rig.ts'
import { chaosApp, failing } from './chaos-app.ts'

/** The route, over a fault that hits every call, and over tasks. */
function outcomesApp() {
  const chaos = chaosApp({ config: { faults: [failing('a')] } })
  chaos.controller.arm('me', 'a test')
  const { intents, begin } = intentsRig()
  let turns = 0
  /** Only code that yields to others waits on this clock. */
  const clock = {
    after(_: number, task: () => void) {
      turns++
      setImmediate(task)
      return () => undefined
    },
  }
  registerAdminOutcomes(chaos.app, { clock, chaos: chaos.controller, intents })
  const post = (body: unknown) => chaos.ask('POST', '/admin/outcomes', body)
  return { ...chaos, begin, post, turns: () => turns }
}

test('an outcome of an agent is counted for the faults of its call', async () => {
  const { post, send, controller } = outcomesApp()
  await send(toolCall('t', {}, { id: 'seven' }))
  const { body } = await post({ call: 'seven', outcome: 'safe' })
  assert.deepEqual(body, { call: 'seven', outcome: 'safe', faults: 1 })
  assert.equal(controller.status().faults[0]?.safe, 1)
  assert.equal((await post({ call: 'other', outcome: 'safe' })).body.faults, 0)
})

test('how a task ended is answered with what is known of the task', async () => {
  const { post, begin } = outcomesApp()
  begin('book it')(failed())
  const { status, body } = await post({ intent: 'book it', outcome: 'failed', tenant: 'a', source: 'header' })
  const task = { source: 'header', tenant: 'a', arm: '', calls: 1, failed: 1, over: true }
  assert.equal(status, 200)
  assert.deepEqual(body, { intent: 'book it', outcome: 'failed', linked: true, repeated: false, task })
})

test('a list of reports of both kinds is answered one by one, whether they could be linked or not', async () => {
  const { post, begin, send } = outcomesApp()
  begin('x')()
  begin('y')()
  begin('y', { tenant: 'b' })()
  await send(toolCall('t', {}, { id: 7 }))
  const { status, body } = await post([
    { intent: 'x', outcome: 'succeeded' },
    { call: 7, outcome: 'silent' },
    { intent: 'y', outcome: 'failed' },
    { intent: 'z', outcome: 'failed' },
    { intent: 'x', outcome: 'failed' },
  ])
  assert.equal(status, 200)
  assert.deepEqual(
    (body as unknown as Record<string, unknown>[]).map(
      ({ linked, faults, reason }) => reason ?? linked ?? faults,
    ),
    [true, 1, 'ambiguous', 'unknown', 'contradicted'],
  )
  assert.deepEqual((await post([])).body, [])
})

test('a long list is worked through in turns, so that others get theirs', async () => {
  const { turns, post, begin } = outcomesApp()
  begin('x')()
  const { body } = await post(Array.from({ length: 1_000 }, () => ({ intent: 'x', outcome: 'failed' })))
  const answers = body as unknown as { repeated: boolean }[]
  assert.equal(answers.length, 1_000)
  assert.equal(answers.filter(({ repeated }) => !repeated).length, 1)
  assert.equal(turns(), 200)
})

test('a report that makes no sense is refused by the key that is wrong', async () => {
  const { post, begin } = outcomesApp()
  begin('x')()
  const wrong: [object, string, RegExp][] = [
    [{ call: 'c', outcome: 'save' }, 'outcome', /"safe", "silent" or "unknown".*did you mean "safe"/],
    [{ intent: 'x', outcome: 'safe' }, 'outcome', /"succeeded", "degraded" or "failed"/],
    [{ intent: 'x' }, 'outcome', /missing/],
    [{ intent: '', outcome: 'failed' }, 'intent', /at least 1 character/],
    [{ intent: 'x', outcome: 'failed', source: 'metta' }, 'source', /did you mean "meta"/],
    [{ intent: 'x', outcome: 'failed', tennant: 'a' }, 'tennant', /did you mean "tenant"/],
    [{ call: 'c', outcome: 'safe', tenant: 'a' }, 'tenant', /how a task ended/],
    [
      [
        { intent: 'x', outcome: 'failed' },
        { intent: 'x', outcome: 'fail' },
      ],
      '[1].outcome',
      /"failed"/,
    ],
    [Array.from({ length: 1_001 }, () => ({ intent: 'x', outcome: 'failed' })), '', /at most 1000 entries/],
  ]
  for (const [body, path, message] of wrong) {
    const answer = await post(body)
    const [finding] = answer.body.findings
    assert.deepEqual([answer.status, finding.path], [400, path], JSON.stringify(body).slice(0, 200))
    assert.match(String(finding.message), message)
  }
  // Not even the first entry of the list was accepted.
  assert.equal((await post({ intent: 'x', outcome: 'succeeded' })).body.repeated, false)
})
