import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { type AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'
import { experiment } from '../../src/commands/break/experiment.ts'
import { guardedInShort } from '../../src/routes/admin-guarded.ts'
import { recordOf, specOf } from '../experiments/guarded/world.ts'

const undecided = { result: 'inconclusive', sentence: 'a sentence' }

/** Lists one comparison and shows its status. */
async function told(t: TestContext, state: 'running' | 'ended', more: object = {}) {
  const shown = {
    kind: 'comparison',
    name: 'one',
    state,
    arms: { control: { set: 'default', units: 1 }, treatment: { set: 'other', units: 2 } },
    metric: 'tcsr',
    verdict: undecided,
    ...more,
  }
  const guarded = guardedInShort(recordOf(specOf(), { state: 'completed', reason: 'it held' }), false)
  const server = createServer(({ url }, response) => {
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify(url === '/admin/experiments' ? { experiments: [shown, guarded] } : shown))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const control = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const said: string[] = []
  const out = { stdout: (line: string) => said.push(line), stderr: (line: string) => said.push(line) }
  for (const args of [['list'], ['status', 'one']])
    await experiment([...args, '--control', control, '--token', 'any'], out, {})
  return said.join('\n')
}

test('a running comparison is undecided; an ended comparison has its verdict', async (t) => {
  const running = await told(t, 'running')
  assert.match(running, /^one +running .* tcsr +not decided yet$/m)
  assert.match(running, /^control: policy set default, 1 unit$/m)
  assert.match(running, /^treatment: policy set other, 2 units$/m)
  assert.equal(running.match(/^units count once they are over: telemetry\.intents\.idle after/gm)?.length, 2)
  const ended = await told(t, 'ended')
  assert.match(ended, /^one +ended .* tcsr +inconclusive$/m)
  assert.doesNotMatch(ended, /units count/)
  const early = await told(t, 'ended', {
    endedBecause: 'it was stopped by hand',
    verdict: { result: 'invalid', sentence: 'invalid: 1 task in control and 2 in treatment, each needs 50' },
  })
  assert.match(
    early,
    /^one +ended .* tcsr +it was stopped by hand; invalid: 1 task in control and 2 in treatment, each needs 50$/m,
  )
  assert.match(ended, /^drill +completed .* - +it held$/m, 'a guarded run has no metric')
})

test('calls in no arm are shown with the missing unit', async (t) => {
  const why = 'they named no arm of the experiment, or no task (intent)'
  assert.match(
    await told(t, 'running', { leftOut: { calls: 6, why } }),
    /^in no arm: 6 calls, as they named no arm of the experiment, or no task \(intent\)$/m,
  )
  assert.doesNotMatch(await told(t, 'running'), /in no arm/)
})
