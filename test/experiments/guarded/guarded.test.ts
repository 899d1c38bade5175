import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  GuardedExperiments,
  type GuardedParts,
  type Survey,
} from '../../../src/experiments/guarded/guarded.ts'
import type { World } from '../../../src/experiments/guarded/lifecycle.ts'
import type { Meter } from '../../../src/experiments/guarded/meter.ts'
import { isRunRecord } from '../../../src/experiments/guarded/record-shape.ts'
import { noHits, type RunRecord } from '../../../src/experiments/guarded/record.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { recordOf, specOf } from './world.ts'

const asked = { by: 'tester', approvedBy: undefined, firstStage: 0 }

/** The runs of a gateway with servers that answer at a steady rate, and a disk that the test controls. */
function stage(more: Partial<GuardedParts> = {}) {
  const clock = new ManualClock()
  const rules = {
    refusals: [] as string[],
    ground: 'one',
    /** Why the disk refuses writes; undefined if it works. */
    full: undefined as string | undefined,
    injected: 1,
    approvers: undefined as readonly string[] | undefined,
    /** Whether faults affect calls. */
    isHit: false,
  }
  const written: RunRecord[] = []
  const told: string[] = []
  const journal = {
    write: (run: RunRecord) => {
      if (rules.full !== undefined) return Promise.reject(new Error(rules.full))
      written.push(run)
      return Promise.resolve()
    },
    flush: () => Promise.resolve(),
  }
  const worldOf = (_: RunRecord, meter: Meter): World => {
    let isOn = false
    let arms: readonly string[] = ['all']
    const call = () => {
      if (!isOn) return
      if (rules.isHit && arms.includes('treatment')) meter.affected(clock.now(), undefined)
      for (const arm of arms)
        meter.end(
          meter.begin(arm, () => 0),
          {
            isWrong: false,
            isRejected: false,
            attempts: 1,
            rejections: [],
            tookMs: 5,
          },
        )
      clock.after(20, call)
    }
    return {
      begin() {
        isOn = true
        call()
      },
      isReady: () => true,
      arm: () => void (arms = ['control', 'treatment']),
      renew: () => undefined,
      rollback() {
        arms = ['all']
        return { armed: [], arms: [], chaos: 'disarmed' }
      },
      end: () => void (isOn = false),
      longestMs: () => 55_000,
      servers: () => [{ name: 'a', isUp: true, uptimeMs: 60_000, probeFailures: 0 }],
      layers: () => [],
      faults: () => ({
        faults: [{ name: 'broken', type: 'rpc.error', ...noHits, decided: 9, injected: rules.injected }],
        engineErrors: 0,
      }),
    }
  }
  const survey = (): Survey => ({
    refusals: rules.refusals,
    doubts: [],
    targets: { environment: 'staging', servers: [{ name: 'a', tools: ['t'], hit: ['t'] }] },
    hashes: { config: 'c', policies: 'p', faults: 'f' },
    seed: '1',
  })
  const guarded = new GuardedExperiments({
    clock,
    journal,
    survey,
    groundOf: () => rules.ground,
    worldOf,
    proofOf: () => ({ armed: [], arms: [], chaos: 'disarmed' }),
    approvers: () => rules.approvers,
    withoutSecrets: (spec) => spec,
    emit: ({ type }) => told.push(type),
    ...more,
  })
  const toEnd = () => clock.advance(60_000)
  return { clock, rules, written, told, guarded, toEnd }
}

test('a run is written down before it begins, at each step, and when it is over', async () => {
  const { guarded, written, toEnd } = stage()
  assert.ok((await guarded.run(specOf(), asked)).ok)
  await toEnd()
  assert.deepEqual(
    written.map(({ phase, stage }) => [phase, stage]),
    [
      ['waiting', -1],
      ['baseline', -1],
      ['stage', 0],
      ['stage', 1],
      ['recovery', 1],
      ['over', 1],
    ],
  )
  assert.equal(guarded.get('drill')?.state, 'completed')
})

test('a run that the gateway refuses, or that cannot be written down, does not begin', async () => {
  const { guarded, rules, written } = stage()
  rules.refusals = ['server a is protected: it is never a target']
  assert.deepEqual(await guarded.run(specOf(), asked), { ok: false, refusals: rules.refusals })
  rules.refusals = []
  rules.full = 'ENOSPC'
  assert.deepEqual(await guarded.run(specOf(), asked), {
    ok: false,
    refusals: ['the run could not be written to the journal: ENOSPC'],
  })
  assert.deepEqual([written, guarded.list()], [[], []])
})

test('a disk that takes no more ends a run that goes on', async () => {
  const { guarded, rules, clock, toEnd } = stage()
  await guarded.run(specOf(), asked)
  await clock.advance(1_000)
  rules.full = 'ENOSPC'
  await toEnd()
  const run = guarded.get('drill')!
  assert.deepEqual([run.state, run.reason], ['failed', 'the run could not be written to the journal: ENOSPC'])
  assert.deepEqual(run.rollback?.armed, [])
})

test('the end of a run is written down once the disk takes it again, or else when the gateway ends', async () => {
  const ends = [
    ({ clock }: ReturnType<typeof stage>) => clock.advance(60_000),
    ({ guarded }: ReturnType<typeof stage>) => guarded.close(),
  ]
  for (const end of ends) {
    const staged = stage()
    const { guarded, rules, clock, written, toEnd } = staged
    await guarded.run(specOf(), asked)
    await clock.advance(1_000)
    rules.full = 'ENOSPC'
    await toEnd()
    assert.notEqual(written.at(-1)?.phase, 'over')
    rules.full = undefined
    await end(staged)
    assert.deepEqual([written.at(-1)?.phase, written.at(-1)?.state], ['over', 'failed'])
  }
})

test('there is one run at a time', async () => {
  const { guarded } = stage()
  const both = await Promise.all([
    guarded.run(specOf(), asked),
    guarded.run({ ...specOf(), name: 'other' }, asked),
  ])
  assert.deepEqual(
    both.map(({ ok }) => ok),
    [true, false],
  )
  const third = await guarded.run({ ...specOf(), name: 'third' }, asked)
  assert.deepEqual(third, { ok: false, refusals: ['experiment "drill" is running: only one runs at a time'] })
})

test('a run that needs approval waits, and is checked again on approval', async () => {
  const { guarded, rules, toEnd } = stage()
  const spec = specOf({ approval: 'required' })
  const waiting = await guarded.run(spec, asked)
  assert.ok(waiting.ok && waiting.run.state === 'pending_approval')
  await toEnd()
  assert.equal(guarded.get('drill')?.state, 'pending_approval')
  rules.refusals = ['a plan was armed meanwhile']
  assert.deepEqual(await guarded.approve('drill', 'boss'), { ok: false, refusals: rules.refusals })
  rules.refusals = []
  assert.ok((await guarded.approve('drill', 'boss')).ok)
  await toEnd()
  const run = guarded.get('drill')!
  assert.deepEqual([run.state, run.actor, run.approver], ['completed', 'tester', 'boss'])
  assert.equal((await guarded.approve('drill', 'boss')).ok, false)
})

test('nobody approves their own run, and if approvers are named, nobody else approves', async () => {
  const { guarded, rules } = stage()
  const spec = specOf({ approval: 'required' })
  const own = await guarded.run(spec, { ...asked, approvedBy: 'Tester' })
  assert.deepEqual(own, { ok: false, refusals: ['Tester requests the run, and so cannot approve it'] })
  await guarded.run(spec, asked)
  assert.deepEqual(await guarded.approve('drill', 'tester'), {
    ok: false,
    refusals: ['tester requests the run, and so cannot approve it'],
  })
  const alike = await guarded.approve('drill', ' ＴESTER\u200b')
  assert.equal(alike.ok, false, 'a lookalike name')
  rules.approvers = ['lead', 'tester']
  assert.deepEqual(await guarded.approve('drill', 'boss'), {
    ok: false,
    refusals: ['boss may not approve the run: chaos.approvers has lead, tester'],
  })
  assert.equal((await guarded.approve('drill', 'tester')).ok, false)
  assert.equal(guarded.get('drill')?.state, 'pending_approval')
  assert.ok((await guarded.approve('drill', 'lead')).ok)
})

test('with trusted keys, only a signature approves, and the own run only where the config allows', async () => {
  const spec = specOf({ approval: 'required' })
  const proof = { proved: 'key', keyId: 'k' } as const
  const { guarded: strict } = stage({ needsSignature: true })
  await strict.run(spec, asked)
  assert.equal((await strict.approve('drill', 'boss')).ok, false, 'a name')
  assert.deepEqual(await strict.approve('drill', 'tester', proof), {
    ok: false,
    refusals: ['tester requests the run, and so cannot approve it'],
  })
  assert.ok((await strict.approve('drill', 'boss', proof)).ok)
  assert.deepEqual(strict.get('drill')?.proof, proof)
  const { guarded, toEnd, written } = stage({ needsSignature: true, mayApproveOwn: true })
  await guarded.run(spec, asked)
  assert.equal((await guarded.approve('drill', 'tester')).ok, false, 'a name')
  assert.ok((await guarded.approve('drill', 'Tester', proof)).ok)
  await toEnd()
  assert.deepEqual(guarded.get('drill')?.proof, { ...proof, self: true })
  assert.ok(isRunRecord(JSON.parse(JSON.stringify(written.at(-1)))))
})

test('an approval of one run begins no other run of the same name', async () => {
  const { guarded, told } = stage()
  const proof = { proved: 'key' } as const
  const waits = specOf({ approval: 'required' })
  const first = await guarded.run(waits, asked)
  assert.ok(first.ok)
  guarded.stop('drill', 'tester', 'to ask for another run')
  const second = await guarded.run(
    specOf({ approval: 'required', stages: [{ share: 0.9, duration: '1h' }] }),
    asked,
  )
  assert.ok(second.ok)
  const only = { id: first.run.id, recheck: () => [] }
  const refused = await guarded.approve('drill', 'boss', proof, only)
  assert.deepEqual(refused, {
    ok: false,
    refusals: [`the approval is for the run ${first.run.id}, and the run ${second.run.id} waits now`],
  })
  assert.equal(guarded.get('drill')?.state, 'pending_approval')
  const changed = { id: second.run.id, recheck: () => ['the targets changed'] }
  assert.deepEqual(await guarded.approve('drill', 'boss', proof, changed), {
    ok: false,
    refusals: ['the targets changed'],
  })
  assert.equal(guarded.get('drill')?.state, 'failed')
  assert.ok(!told.includes('began'))
})

test('a first stage above a quarter of the calls, or a later one above a half, waits for approval', async () => {
  for (const [shares, says] of [
    [[0.25, 0.5], undefined],
    [[0.26], /approves it: stage 1 has 26% of the calls; without approval, at most 25% are allowed$/],
    [[0.9], /stage 1 has 90%/],
    [[0.1, 0.6], /stage 2 has 60% of the calls; without approval, at most 50% are allowed$/],
  ] as const) {
    const { guarded } = stage()
    const stages = shares.map((share) => ({ share, duration: '2s' }))
    const begun = await guarded.run(specOf({ stages }), asked)
    assert.ok(begun.ok)
    assert.equal(begun.run.state, says === undefined ? 'running' : 'pending_approval')
    if (says !== undefined) assert.match(begun.run.reason, says)
  }
})

test('a run whose approval cannot be written down waits as before', async () => {
  const { guarded, rules } = stage()
  await guarded.run(specOf({ approval: 'required' }), asked)
  rules.full = 'ENOSPC'
  assert.deepEqual(await guarded.approve('drill', 'boss'), {
    ok: false,
    refusals: ['the run could not be written to the journal: ENOSPC'],
  })
  assert.equal(guarded.get('drill')?.state, 'pending_approval')
  rules.full = undefined
  assert.ok((await guarded.approve('drill', 'boss')).ok)
})

test('a run stopped before its waiting is written down does not wait', async () => {
  const { guarded } = stage()
  const waiting = guarded.run(specOf({ approval: 'required' }), asked)
  guarded.stop('drill', 'boss', 'not today')
  assert.deepEqual(await waiting, { ok: false, refusals: ['boss stopped it: not today'] })
  assert.equal(guarded.get('drill')?.state, 'aborted')
})

test('a waiting run can be stopped', async () => {
  const { guarded, written } = stage()
  await guarded.run(specOf({ approval: 'required' }), asked)
  assert.deepEqual(guarded.stop('drill', 'boss', 'not today'), { ok: true })
  assert.equal(written.at(-1)?.state, 'aborted')
  assert.deepEqual(guarded.stop('drill', 'boss', 'again'), {
    ok: false,
    why: 'experiment "drill" does not run',
  })
})

test('stages are skipped only with a name', async () => {
  const { guarded, toEnd } = stage()
  const refused = await guarded.run(specOf(), { ...asked, firstStage: 1 })
  assert.ok(!refused.ok && /skipping stages needs an approver/.test(refused.refusals.join()))
  const none = await guarded.run(specOf(), { ...asked, firstStage: 2, approvedBy: 'boss' })
  assert.deepEqual(none, { ok: false, refusals: ['there is no stage 3: there are 2'] })
  assert.ok((await guarded.run(specOf(), { ...asked, firstStage: 1, approvedBy: 'boss' })).ok)
  await toEnd()
  assert.equal(guarded.get('drill')?.stages.length, 1)
})

test('a config change that affects a run ends the run; other changes do nothing', async () => {
  const { guarded, rules, clock } = stage()
  await guarded.run(specOf(), asked)
  await clock.advance(2_500)
  guarded.follow()
  await clock.advance(10)
  assert.equal(guarded.get('drill')?.state, 'running')
  rules.ground = 'other'
  guarded.follow()
  assert.equal(guarded.get('drill')?.state, 'running', 'no run begins while the config comes into force')
  await clock.advance(10)
  assert.equal(guarded.get('drill')?.state, 'failed')
})

test('a run left unfinished by an earlier process has failed; a finished run counts', async () => {
  const { guarded, written } = stage()
  await guarded.recover([
    recordOf(specOf(), { id: 'a', state: 'completed', phase: 'over' }),
    recordOf({ ...specOf(), name: 'other' }, { id: 'b', state: 'running', phase: 'stage', stage: 1 }),
    recordOf({ ...specOf(), name: 'third' }, { id: 'c', state: 'pending_approval' }),
    recordOf(
      { ...specOf(), name: 'fourth' },
      {
        id: 'd',
        state: 'running',
        phase: 'baseline',
        samples: [{ atMs: 7_004, phase: 'baseline', share: 0, injected: 0, arms: {} }],
      },
    ),
  ])
  assert.deepEqual(
    guarded.list().map(({ name, state, reason }) => [name, state, reason]),
    [
      ['drill', 'completed', ''],
      ['other', 'failed', 'the gateway ended while it was in its stage 2'],
      ['third', 'failed', 'the gateway ended while it waited for approval'],
      [
        'fourth',
        'failed',
        'the gateway ended while it was in its baseline; its record ends 7s after its start, or slightly later',
      ],
    ],
  )
  assert.deepEqual(
    written.map(({ id, state }) => [id, state]),
    [
      ['b', 'failed'],
      ['c', 'failed'],
      ['d', 'failed'],
    ],
  )
  // A reopened journal accepts only run records, so each JSON copy must be a run record.
  for (const run of written) assert.ok(isRunRecord(JSON.parse(JSON.stringify(run))), run.id)
})

test('a run that goes on is written down every five seconds, with what it has done by then', async () => {
  const { guarded, written, clock } = stage()
  await guarded.run(specOf({ stages: [{ share: 0.25, duration: '30s' }] }), asked)
  await clock.advance(20_000)
  const calls = written.flatMap(({ phase, samples }) => (phase === 'stage' ? samples.length : []))
  assert.ok(calls.length >= 4, `${calls.length} times`)
  assert.deepEqual(
    calls.toSorted((one, other) => one - other),
    calls,
  )
  assert.ok(calls.at(-1)! >= 15, `${calls.at(-1)} rows`)
})

test('the third completed run of a shape says what to do next instead of declaring resilience', async () => {
  const { guarded, toEnd } = stage()
  const proposals: (string | undefined)[] = []
  for (let n = 0; n < 3; n++) {
    await guarded.run(specOf({ reason: `for the time number ${n}` }), asked)
    await toEnd()
    proposals.push(guarded.get('drill')?.proposal)
  }
  assert.deepEqual(proposals.slice(0, 2), [undefined, undefined])
  assert.equal(
    proposals[2],
    '3 runs of the same shape were completed: another run shows nothing new. Either widen the radius (its last stage has 50% of the calls), or inject another fault than rpc.error.',
  )
})

test('a listener hears each change of one experiment, until the listener leaves', async () => {
  const { guarded, toEnd } = stage()
  const heard: string[] = []
  const leave = guarded.listen('drill', ({ phase }) => heard.push(phase))
  guarded.listen('other', () => assert.fail('a different run'))
  await guarded.run(specOf(), asked)
  await toEnd()
  assert.deepEqual([...new Set(heard)], ['baseline', 'stage', 'recovery', 'over'])
  leave?.()
  const { length } = heard
  await guarded.run(specOf(), asked)
  assert.equal(heard.length, length)
})

test('a gateway that ends takes its run along, and one that waits', async () => {
  const { guarded, written, clock } = stage()
  await guarded.run({ ...specOf({ approval: 'required' }), name: 'waiting' }, asked)
  await guarded.run(specOf(), asked)
  await clock.advance(3_000)
  await guarded.close()
  assert.deepEqual(
    written.slice(-2).map(({ name, state }) => [name, state]),
    [
      ['waiting', 'failed'],
      ['drill', 'failed'],
    ],
  )
  assert.equal((await guarded.run(specOf(), asked)).ok, false)
})

test('the record has the probes of the targets, and no probes of other servers or later times', async () => {
  const { guarded, clock, toEnd } = stage()
  const probe = { server: 'a', state: 'suspicious', reason: 'timeout', tookMs: 3 }
  guarded.probed(probe)
  await guarded.run(specOf(), asked)
  await clock.advance(1_000)
  guarded.probed({ ...probe, server: 'b' })
  guarded.probed(probe)
  await toEnd()
  guarded.probed(probe)
  const { probes } = guarded.get('drill')!
  assert.deepEqual(probes, [{ ...probe, atMs: 1_000 }])
})

test('a probe that finds a target not well is a sign that the gateway has noticed', async () => {
  const { guarded, rules, clock, toEnd } = stage()
  rules.isHit = true
  await guarded.run(specOf(), asked)
  while (guarded.get('drill')?.phase !== 'stage') await clock.advance(250)
  await clock.advance(300)
  guarded.probed({ server: 'a', state: 'well', reason: undefined, tookMs: 3 })
  guarded.probed({ server: 'a', state: 'suspicious', reason: 'timeout', tookMs: 3 })
  await toEnd()
  assert.equal(guarded.get('drill')!.detection?.sign, 'probe of a: timeout')
})

test('a run stopped or killed while being written down does not begin', async () => {
  for (const end of ['stop', 'kill'] as const) {
    const { guarded, written } = stage()
    const asking = guarded.run(specOf(), asked)
    assert.equal(guarded.get('drill')?.phase, 'waiting')
    if (end === 'stop') assert.deepEqual(guarded.stop('drill', 'tester', 'no'), { ok: true })
    else guarded.killed('tester', 'no')
    const answer = await asking
    assert.equal(answer.ok, false)
    const run = guarded.get('drill')!
    assert.equal(run.state, 'aborted')
    assert.match(run.reason, /stopped it/)
    assert.equal(
      written.some(({ phase }) => phase === 'baseline'),
      false,
    )
  }
})

test('a run refused while being written down does not begin', async () => {
  const { guarded, rules } = stage()
  const asking = guarded.run(specOf(), asked)
  rules.refusals = ['fault "other" is armed at these servers']
  assert.deepEqual(await asking, { ok: false, refusals: rules.refusals })
  assert.equal(guarded.get('drill')?.state, 'failed')
})
