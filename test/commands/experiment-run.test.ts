import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { openKey } from '../../src/chaos/journal/head.ts'
import { experiment } from '../../src/commands/break/experiment.ts'
import { guardedInShort } from '../../src/routes/admin-guarded.ts'
import { recordOf, specOf } from '../experiments/guarded/world.ts'

/** A control port on which a run begins. A later look finds another run under the same name. */
async function control(t: TestContext, found: Parameters<typeof recordOf>[1]): Promise<string> {
  const server = createServer((request, response) => {
    const more = request.method === 'POST' ? { id: 'mine' } : found
    response.setHeader('content-type', 'application/json')
    const record = recordOf(specOf(), more)
    const isReport = request.url?.endsWith('/report') === true
    response.end(JSON.stringify(isReport ? record : guardedInShort(record, false)))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

async function run(t: TestContext, found: Parameters<typeof recordOf>[1]) {
  const [said, wrong]: [string[], string[]] = [[], []]
  const out = { stdout: (line: string) => said.push(line), stderr: (line: string) => wrong.push(line) }
  const file = 'config/experiments/latency.yaml'
  const args = ['run', file, '--control', await control(t, found), '--token', 'any']
  return { code: await experiment(args, out, {}), said, wrong }
}

test('a run with a good end is reported', async (t) => {
  const { code, said } = await run(t, { id: 'mine', state: 'completed', phase: 'over', reason: 'it held' })
  assert.deepEqual([code, said[0]], [0, 'drill: completed; it held'])
  assert.ok(said.includes('verdict: no evidence'), said.join())
  assert.ok(said.includes('  below_floor: the treatment had fewer than 30 calls in a stage'), said.join())
})

test('the report of a recovered run gives the time since the first effect, and since the end of the faults', async (t) => {
  const recovery = { recoveredAfterMs: 12_000, steadyAfterMs: 19, waitedMs: 19, limitMs: 60_000, layers: {} }
  const { said } = await run(t, { id: 'mine', state: 'completed', phase: 'over', recovery })
  assert.ok(
    said.includes('steady again 12s after the first effect, 19ms after the end of the faults'),
    said.join(),
  )
})

test('runs cannot be verified without their folder, which is an error', async (t) => {
  const state = await mkdtemp(join(tmpdir(), 'runs-'))
  t.after(() => rm(state, { recursive: true }))
  await openKey(state)
  const wrong: string[] = []
  const out = { stdout: (line: string) => wrong.push(line), stderr: (line: string) => wrong.push(line) }
  assert.equal(await experiment(['verify', '--state', state], out, {}), 1)
  assert.match(wrong.join('\n'), /^breakwater: \S+experiments does not exist: /)
})

test('another person’s run of the same name is not taken for the own run', async (t) => {
  const { code, said, wrong } = await run(t, { id: 'theirs', state: 'completed', phase: 'over' })
  assert.deepEqual([code, said], [1, []])
  assert.match(wrong.at(-1) ?? '', /^breakwater: run mine of drill was followed by run theirs/)
})

test('a run that ended otherwise ends the command with 1, as the help says', async (t) => {
  for (const state of ['aborted', 'deviated', 'failed', 'invalid', 'inconclusive'] as const)
    assert.equal((await run(t, { id: 'mine', state, phase: 'over' })).code, 1, state)
  const lines: string[] = []
  const out = { stdout: (line: string) => lines.push(line), stderr: (line: string) => lines.push(line) }
  await experiment(['--help'], out, {})
  assert.match(lines.join('\n'), /1 on failure or refusal, or when the run was not completed/)
})
