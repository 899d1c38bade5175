import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp } from '../support/gateway.ts'
import { traffic } from '../experiments/scene.ts'
import { approve, Asker, envelopeOf, insideSpec, install, opened, propose, tokens } from './scene.ts'

after(cleanUp)

describe('runs of agents', { concurrency: 2 }, () => {
  test('an agent runs an experiment inside an envelope, and its record proves the approver by a key', async () => {
    const scene = await opened()
    const asker = await Asker.open(scene.url)
    assert.equal((await install(scene, await envelopeOf(scene))).status, 201)
    const agents = await traffic(scene.gateway)
    const proposed = await propose(
      asker,
      insideSpec({
        // Long enough for the gate of a busy machine, which ends the stage.
        stages: [{ share: '25%', duration: '20s' }],
        gate: {
          rollbackOn: [{ metric: 'error_ratio', above: '10%', for: '500ms' }],
          over: '1s',
          minimum: 4,
          missing: '5s',
        },
      }),
    )
    assert.equal(proposed.data.needs, 'nothing', JSON.stringify(proposed))
    const started = await asker.call('start_run', { proposal: proposed.data.proposal, key: 'k1' })
    assert.equal(started.error, undefined, started.text)
    const repeated = await asker.call('start_run', { proposal: proposed.data.proposal, key: 'k1' })
    assert.equal(repeated.data.run, started.data.run)
    let run = await asker.call('get_run', { run: started.data.run, wait: '20s' })
    await until('the run is over', async () => {
      run = await asker.call('get_run', { run: started.data.run, wait: '20s' })
      return run.data.state !== 'running'
    })
    // Half of the calls of a stage fail, so the gate ends the run.
    assert.equal(run.data.state, 'aborted', JSON.stringify(run.data))
    assert.equal(run.data.proved, 'key')
    assert.equal(run.data.approver, 'alice')
    assert.equal(run.data.by, 'writer')
    // The breach itself is the nearest approach to a limit.
    const { breach, nearest } = run.data as Record<'breach' | 'nearest', { value: number }>
    assert.ok(nearest.value >= breach.value, JSON.stringify(run.data))
    await agents.stop()
  })

  test('an agent starts a run that a person approved, once', async () => {
    const scene = await opened()
    const asker = await Asker.open(scene.url)
    const agents = await traffic(scene.gateway)
    const proposed = await propose(asker)
    assert.equal(proposed.data.needs, 'approval', JSON.stringify(proposed))
    const id = String(proposed.data.proposal)
    const early = await asker.call('start_run', { proposal: id, key: 'k' })
    assert.equal(early.error?.code, 'needs_approval')
    assert.equal(early.error?.began, false)
    assert.equal((await approve(scene, id)).status, 200)
    const started = await asker.call('start_run', { proposal: id, key: 'k' })
    assert.equal(started.error, undefined, started.text)
    const stopped = await asker.call('stop_run', { run: started.data.run, why: 'seen enough' })
    const [row] = stopped.data.stopped as { state: string; untrusted: { reason: string } }[]
    assert.equal(row?.state, 'aborted')
    assert.match(row?.untrusted.reason ?? '', /^writer stopped it: seen enough/)
    const second = await asker.call('start_run', { proposal: id, key: 'another' })
    assert.equal(second.error?.code, 'approval_used')
    await agents.stop()
  })

  test('a read-only credential may stop a run, but neither propose nor start a run', async () => {
    const scene = await opened()
    const reader = await Asker.open(scene.url, tokens.reader)
    const { tools } = await reader.client.listTools()
    assert.deepEqual(
      tools.filter(({ annotations }) => annotations?.readOnlyHint !== true).map(({ name }) => name),
      ['stop_run', 'update_gameday'],
    )
    const proposed = await propose(reader)
    assert.equal(proposed.error?.code, 'not_allowed')
    assert.equal((await reader.call('stop_run', { all: true })).error, undefined)
  })
})
