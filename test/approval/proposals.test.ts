import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Asked } from '../../src/experiments/guarded/guarded.ts'
import { install, insideSpec, opened, propose, runIn, writer } from './scene.ts'

const whyOf = (list: readonly { readonly why: string }[]) => list.map(({ why }) => why)

test('an agent has eight open proposals, and another replaces the oldest', async () => {
  const { runs } = await opened()
  for (let n = 0; n < 9; n++) await propose(runs, `question ${n}`)
  assert.deepEqual(
    whyOf(runs.proposals.list),
    Array.from({ length: 8 }, (_, n) => `question ${n + 1}`),
  )
})

test('a started proposal stays, however many proposals follow, so that its key returns the same run', async () => {
  const scene = await opened()
  const { runs } = scene
  await install(scene)
  const first = await propose(runs, 'the first')
  const run = runIn(await runs.starts.start(writer, first.id, 'k'))
  for (let n = 0; n < 12; n++) await propose(runs, `question ${n}`)
  assert.equal(runIn(await runs.starts.start(writer, first.id, 'k')).id, run.id)
})

test('of the started proposals of an agent, the eight latest stay', async () => {
  const scene = await opened()
  const { runs } = scene
  await install(scene)
  const ids: string[] = []
  for (let n = 0; n < 9; n++) {
    const { id } = await propose(runs, `question ${n}`)
    runIn(await runs.starts.start(writer, id, 'k'))
    ids.push(id)
  }
  const again = await runs.starts.start(writer, ids[0]!, 'k')
  assert.equal(!again.ok && again.code, 'approval_used')
  runIn(await runs.starts.start(writer, ids[1]!, 'k'))
})

test('no agent takes the place of another, with as many agents as the config allows', async () => {
  const { runs } = await opened()
  const agents = Array.from({ length: 32 }, (_, n) => ({ name: `agent-${n}`, mayWrite: true }))
  for (const agent of agents) for (let n = 0; n < 8; n++) await propose(runs, `question ${n}`, agent)
  for (const { name } of agents) assert.equal(runs.proposals.list.filter(({ by }) => by === name).length, 8)
})

test('a proposal ends after an hour, but not while its start is under way', async () => {
  const scene = await opened()
  const { runs, clock, rules } = scene
  await install(scene)
  await propose(runs, 'waits')
  const begun = await propose(runs, 'begins')
  let end = (_: Asked) => undefined as void
  const underWay = new Promise<void>((isUnderWay) => {
    rules.begins = () => (isUnderWay(), new Promise((resolve) => (end = resolve)))
  })
  const result = runs.starts.start(writer, begun.id, 'k')
  await underWay
  await clock.advance(3_600_000)
  assert.deepEqual(whyOf(runs.proposals.list), ['begins'])
  end({ ok: false, refusals: ['the disk'] })
  assert.equal((await result).ok, false)
  assert.deepEqual(runs.proposals.list, [])
})

test('an equal proposal is returned again, and an hour allows 60 others', async () => {
  const { runs } = await opened()
  const first = await propose(runs, 'question 1')
  assert.equal((await propose(runs, 'question 1')).id, first.id)
  for (let n = 2; n <= 60; n++) await propose(runs, `question ${n}`)
  const over = await runs.proposals.propose(writer, { spec: insideSpec(), firstStage: 0, why: 'one more' })
  assert.deepEqual(!over.ok && [over.code, over.repeat], ['busy', 'later'])
})

test('the reasons against a proposed run are the reasons of the moment', async () => {
  const { runs, rules } = await opened()
  rules.refusals = ['server a is protected']
  const proposal = await propose(runs, 'a question')
  assert.deepEqual(runs.proposals.refusalsOf(proposal), ['server a is protected'])
  rules.refusals = []
  assert.deepEqual(runs.proposals.refusalsOf(proposal), [])
})

test('no agent proposes a spec of which the signer would not see everything', async () => {
  const { runs } = await opened()
  const headers = { 'x-hint': 'call delete' }
  const spec = insideSpec({ faults: [{ name: 'broken', type: 'http.status', rate: 1, headers }] })
  await assert.rejects(propose(runs, 'to see', writer, spec), /which no signer is shown/)
  const plain = insideSpec({ faults: [{ name: 'broken', type: 'http.status', rate: 1 }] })
  assert.ok(await propose(runs, 'to see', writer, plain))
})
