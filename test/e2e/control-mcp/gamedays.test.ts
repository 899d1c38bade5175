import assert from 'node:assert/strict'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { after, describe, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp, type Json, newFolder } from '../support/gateway.ts'
import { traffic } from '../experiments/scene.ts'
import {
  approve,
  Asker,
  envelopeOf,
  insideSpec,
  install,
  opened,
  type Scene,
  tokens,
  type Told,
} from './scene.ts'

after(cleanUp)

const MINUTE = { stages: [{ share: '25%', duration: '1m' }] }

const gameDay = (more: Json = {}): Json => ({
  name: 'friday',
  title: 'The server fails <!here>',
  roles: { lead: 'alice' },
  hypothesis: 'Agents cope.',
  scope: { servers: ['flaky'] },
  experiments: [{ file: 'first.json' }, { spec: insideSpec({ name: 'second' }) }],
  ...more,
})

/** Writes files into a folder of plans; returns the folder. */
async function plansOf(files: Readonly<Record<string, Json>>): Promise<string> {
  const folder = join(await newFolder(), 'plans')
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await writeFile(join(folder, name), JSON.stringify(content))
  }
  return folder
}

const usual = { 'friday.json': gameDay(), 'first.json': insideSpec({ name: 'first' }) }

interface Current {
  readonly experiment: string
  readonly state: string
  readonly run?: string
  readonly waitsFor?: { readonly proposal: string; readonly command: string }
}

const currentOf = ({ data }: Told) => data.current as Current | undefined

/** Waits until the summary of the GameDay satisfies `says`. */
async function comesTo(asker: Asker, what: string, says: (told: Told) => boolean): Promise<Told> {
  let told = await asker.call('get_gameday')
  await until(
    what,
    async () => {
      told = await asker.call('get_gameday')
      assert.equal(told.error, undefined, told.text)
      return says(told)
    },
    60_000,
  ).catch((error: Error) => {
    throw new Error(`${error.message}: ${told.text} ${JSON.stringify(told.data)}`)
  })
  return told
}

const waitsFor = (asker: Asker, experiment: string) =>
  comesTo(asker, `${experiment} waits`, (told) => {
    const current = currentOf(told)
    return current?.experiment === experiment && current.waitsFor !== undefined
  })

const rowsOf = async (asker: Asker, part: string) =>
  (await asker.call('get_gameday', { part })).data.rows as Json[]

const ledgerOf = async ({ folder }: Scene) =>
  (await readFile(join(folder, 'state', 'approvals.jsonl'), 'utf8')).split('\n')

describe('GameDays of agents', { concurrency: 2 }, () => {
  test('without an envelope, each experiment waits for a signed approval, and no wait writes a refusal', async () => {
    const scene = await opened({}, { plans: await plansOf(usual) })
    const asker = await Asker.open(scene.url)
    const agents = await traffic(scene.gateway)
    const plan = await asker.call('get_plan', { plan: 'friday' })
    assert.deepEqual(
      (plan.data.experiments as Json[]).map(({ experiment, needs }) => [experiment, needs]),
      [
        ['first', 'approval'],
        ['second', 'approval'],
      ],
    )
    const started = await asker.call('start_gameday', { plan: 'friday', key: 'k' })
    assert.equal(started.error, undefined, started.text)
    for (const experiment of ['first', 'second']) {
      const told = await waitsFor(asker, experiment)
      const { proposal, command } = currentOf(told)!.waitsFor!
      assert.equal(
        command,
        `breakwater proposal approve ${proposal} --key FILE --control ${scene.gateway.control}`,
      )
      assert.ok(told.text.endsWith(`A person must approve the run: ${command}`), told.text)
      assert.equal((await approve(scene, proposal)).status, 200)
    }
    const over = await comesTo(asker, 'the GameDay is over', ({ data }) => data.state === 'over')
    assert.equal(over.data.pollAfterMs, undefined)
    const steps = await rowsOf(asker, 'steps')
    assert.deepEqual(
      steps.map(({ experiment, state }) => [experiment, state]),
      [
        ['first', 'done'],
        ['second', 'done'],
      ],
    )
    const { data } = await asker.call('get_run', { run: steps[1]!.run })
    assert.deepEqual([data.by, data.approver, data.proved], ['writer', 'alice', 'key'])
    assert.deepEqual(
      (await ledgerOf(scene)).filter((line) => line.includes('"refused"')),
      [],
    )
    await agents.stop()
  })

  test('inside an envelope a GameDay runs through, and one key begins one GameDay', async () => {
    const scene = await opened({}, { plans: await plansOf(usual) })
    const asker = await Asker.open(scene.url)
    const agents = await traffic(scene.gateway)
    assert.equal((await install(scene, await envelopeOf(scene))).status, 201)
    const started = await asker.call('start_gameday', { plan: 'friday', key: 'k' })
    assert.equal(started.error, undefined, started.text)
    const again = await asker.call('start_gameday', { plan: 'friday', key: 'k' })
    assert.equal(again.data.gameday, started.data.gameday)
    const second = await asker.call('start_gameday', { plan: 'friday', key: 'another' })
    assert.deepEqual([second.error?.code, second.error?.began], ['busy', false])
    await comesTo(asker, 'the GameDay is over', ({ data }) => data.state === 'over')
    const steps = await rowsOf(asker, 'steps')
    assert.ok(
      steps.every(({ state }) => state === 'done'),
      JSON.stringify(steps),
    )
    const { proposals } = (await asker.call('get_status')).data
    assert.deepEqual(
      (proposals as Json[]).map(({ state }) => state),
      ['started', 'started'],
    )
    await agents.stop()
  })

  test('any agent pauses a GameDay and clears its faults, and only a person resumes after a foreign pause', async () => {
    const plans = await plansOf({ 'friday.json': gameDay({ experiments: [{ spec: insideSpec(MINUTE) }] }) })
    const scene = await opened({}, { plans })
    const [asker, other, reader] = await Promise.all([
      Asker.open(scene.url),
      Asker.open(scene.url, tokens.other),
      Asker.open(scene.url, tokens.reader),
    ])
    const agents = await traffic(scene.gateway)
    const envelope = await envelopeOf(scene, { gate: ['error_ratio < 100% for 500ms'], maxRun: '10m' })
    assert.equal((await install(scene, envelope)).status, 201)
    assert.equal((await asker.call('start_gameday', { plan: 'friday', key: 'k' })).error, undefined)
    const armed = async () =>
      (await scene.gateway.admin<{ faults: unknown[] }>('/admin/chaos')).body.faults.length
    // The phase says `stage` while the journal is being written, before the faults are armed.
    await until('one fault is armed', async () => (await armed()) === 1, 60_000)
    const paused = await reader.call('update_gameday', { action: 'pause', text: 'too loud' })
    assert.equal(paused.data.state, 'paused', paused.text)
    assert.deepEqual((paused.data.paused as Json).by, 'reader')
    assert.equal(await armed(), 0)
    assert.equal((await reader.call('update_gameday', { action: 'pause' })).error, undefined)
    for (const by of [asker, other, reader])
      for (const action of ['resume', 'skip']) {
        const { error } = await by.call('update_gameday', { action })
        assert.equal(error?.code, 'not_allowed', JSON.stringify(error))
      }
    const id = String(paused.data.gameday)
    const resumed = await scene.gateway.post(`/admin/gamedays/${id}/resume`, { by: 'alice' })
    assert.equal(resumed.status, 200, JSON.stringify(resumed.body))
    const halted = await reader.call('stop_run', { all: true, why: 'enough' })
    assert.equal(halted.data.paused, id)
    const stopped = await other.call('update_gameday', { action: 'stop', text: 'over' })
    assert.equal(stopped.data.state, 'stopped')
    assert.equal((await other.call('update_gameday', { action: 'stop' })).data.state, 'stopped')
    assert.match(String((stopped.data.untrusted as Json).reason), /^other stopped it: over/)
    await agents.stop()
  })

  test('after a restart the GameDay is paused, and a resumed GameDay needs a new approval', async () => {
    const scene = await opened({}, { plans: await plansOf(usual) })
    let asker = await Asker.open(scene.url)
    assert.equal((await asker.call('start_gameday', { plan: 'friday', key: 'k' })).error, undefined)
    const first = currentOf(await waitsFor(asker, 'first'))!.waitsFor!.proposal
    assert.equal((await approve(scene, first)).status, 200)
    await scene.gateway.program.kill()
    await scene.again()
    asker = await Asker.open(scene.url)
    const again = await asker.call('start_gameday', { plan: 'friday', key: 'k' })
    assert.equal(again.data.state, 'paused', JSON.stringify(again))
    assert.equal((await asker.call('update_gameday', { action: 'resume' })).data.state, 'running')
    const { proposal } = currentOf(await waitsFor(asker, 'first'))!.waitsFor!
    assert.notEqual(proposal, first)
    const skipped = await asker.call('update_gameday', { action: 'skip', text: 'later' })
    assert.equal(currentOf(skipped)?.experiment, 'second')
  })
})

test('the folder of plans shows GameDays, and no file outside of the folder', async () => {
  const plans = await plansOf({
    ...usual,
    'away.json': gameDay({ name: 'away', experiments: [{ file: '../secret.json' }] }),
    'below.json': gameDay({ name: 'below', experiments: [{ file: 'more/third.json' }] }),
    'more/third.json': insideSpec({ name: 'third' }),
    'largest.json': gameDay({
      name: 'largest',
      experiments: Array.from({ length: 32 }, (_, at) => ({
        after: '23h',
        spec: insideSpec({
          name: `${'x'.repeat(37)}-${at}`,
          targets: { server: `nowhere-${'n'.repeat(240)}` },
        }),
      })),
    }),
    '../secret.json': insideSpec({ name: 'secret', reason: 'a reason that no agent may read' }),
  })
  const scene = await opened({}, { plans })
  const asker = await Asker.open(scene.url)
  const { data } = await asker.call('list_plans', { kind: 'gameday' })
  assert.deepEqual(
    (data.rows as Json[]).map(({ plan, kind, problems }) => [plan, kind, problems]),
    [
      ['away', 'gameday', 1],
      ['below', 'gameday', undefined],
      ['friday', 'gameday', undefined],
      ['largest', 'gameday', undefined],
    ],
  )
  const told = await asker.call('get_plan', { plan: 'away' })
  assert.match(String((told.data.findings as string[])[0]), /outside of the folder/)
  assert.doesNotMatch(JSON.stringify(told), /no agent may read/)
  const { error } = await asker.call('start_gameday', { plan: 'away', key: 'k' })
  assert.equal(error?.code, 'invalid')
  assert.equal((await asker.call('propose_run', { plan: 'friday', why: 'to see' })).error?.code, 'not_found')
  const largest = await asker.call('get_plan', { plan: 'largest' })
  assert.equal(largest.error, undefined, largest.text)
  assert.equal((largest.data.experiments as Json[]).length, 32)
  assert.ok(largest.bytes <= 8_192, `${largest.bytes} bytes`)
  // The second read keeps the plan; a change of the experiment's file is seen all the same.
  for (let reads = 0; reads < 2; reads++) await asker.call('get_plan', { plan: 'below' })
  await writeFile(join(plans, 'more/third.json'), JSON.stringify(insideSpec({ name: 'renamed' })))
  const changed = await asker.call('get_plan', { plan: 'below' })
  assert.equal((changed.data.experiments as Json[])[0]!.experiment, 'renamed')
})
