import assert from 'node:assert/strict'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isAlive } from '../../support/processes.ts'
import { until } from '../../support/until.ts'
import { descendantsOf } from '../support/family.ts'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { ask, isWritten, journalOf, shown, specOf, started, traffic } from './scene.ts'

after(cleanUp)

const child = fileURLToPath(new URL('../../fixtures/family-server.js', import.meta.url))

/** A run that lasts until the test ends it. */
const lasting = (more: Json = {}) =>
  specOf({
    gate: { rollbackOn: [{ metric: 'rejected_ratio', above: '99%' }], over: '1s', minimum: 4 },
    stages: [
      { share: '25%', duration: '2s' },
      { share: '50%', duration: '10m' },
    ],
    ...more,
  })

interface Place {
  readonly name: string
  readonly spec: Json
  /** Whether the run's record shows this place. */
  readonly reached: (record: Json) => boolean
  /** The record's text after the crash. */
  readonly says: RegExp
}

const inStage = (stage: number) => (record: Json) => record.phase === 'stage' && record.stage === stage - 1

const places: readonly Place[] = [
  {
    name: 'pending_approval',
    spec: lasting({ approval: 'required' }),
    reached: ({ state }) => state === 'pending_approval',
    says: /^the gateway ended while it waited for approval$/,
  },
  {
    name: 'its baseline',
    spec: lasting({ baseline: { duration: '10m' } }),
    reached: ({ phase }) => phase === 'baseline',
    says: /^the gateway ended while it was in its baseline(;|$)/,
  },
  { name: 'its first stage', spec: lasting(), reached: inStage(1), says: /in its stage 1(;|$)/ },
  { name: 'its second stage', spec: lasting(), reached: inStage(2), says: /in its stage 2(;|$)/ },
  {
    name: 'its recovery',
    spec: lasting({
      recovery: { within: '5m', over: '60s' },
      stages: [{ share: '25%', duration: '1s' }],
    }),
    reached: ({ phase }) => phase === 'recovery',
    says: /in its recovery(;|$)/,
  },
]

// Concurrent, because the tests mostly wait and share no state.
describe('runs whose gateway ends', { concurrency: 2 }, () => {
  for (const { name, spec, reached, says } of places)
    test(`a gateway that is killed while a run is in ${name} starts with nothing armed, and the run has failed`, async () => {
      const { gateway, folder, parts } = await started()
      const withChild = {
        ...parts,
        servers: { ...parts.servers, family: { command: process.execPath, args: [child] } },
      }
      await gateway.reconfigure(withChild)
      await gateway.waitFor('up', 'family')
      const agents = await traffic(gateway)
      assert.equal((await ask(gateway, spec)).status, 202)
      await isWritten(folder, name, reached)
      if (name.includes('stage'))
        await until('faults hit calls', async () => (await shown(gateway)).faults[0]!.injected > 0)
      const children = descendantsOf(gateway.program.pid)
      assert.ok(children.length > 0)
      gateway.program.signal('SIGKILL')
      await gateway.program.ended
      await agents.stop()
      await until('the children are gone', () => children.every((pid) => !isAlive(pid)))

      const again = await Gateway.start(withChild, { folder })
      await again.waitFor('up', 'flaky')
      const run = await shown(again)
      assert.equal(run.state, 'failed')
      assert.match(run.reason, says)
      assert.deepEqual([run.rollback?.armed, run.rollback?.arms], [[], []])
      assert.equal(await again.metric('breakwater_chaos_armed'), 0)
      const calls = await traffic(again)
      await until('20 calls', () => calls.counts.calls >= 20)
      await calls.stop()
      assert.equal(calls.counts.failed, 0)
      assert.deepEqual(
        (await journalOf(folder)).map(({ state }) => state),
        ['failed'],
      )
      const left = await readdir(join(folder, 'state', 'experiments'))
      assert.deepEqual(
        left.filter((file) => file.startsWith('open-')),
        [],
      )
      // The old record does not block the next run.
      assert.equal((await ask(again, spec)).status, 202)
    })

  test('a gateway that is stopped rolls its run back and writes that down first', async () => {
    const { gateway, folder } = await started()
    const agents = await traffic(gateway)
    await ask(gateway, lasting())
    await isWritten(folder, 'its first stage', inStage(1))
    gateway.program.signal('SIGTERM')
    assert.equal((await gateway.program.ended).code, 0)
    await agents.stop()
    const [run] = await journalOf(folder)
    assert.deepEqual([run?.state, run?.reason], ['failed', 'the gateway was stopped'])
    assert.deepEqual((run?.rollback as Json).armed, [])
  })
})
