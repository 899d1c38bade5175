import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { openKey } from '../../../src/chaos/journal/head.ts'
import { runs as runsCommand } from '../../../src/commands/evidence/runs.ts'
import { journalFolder, keptRecords, RunJournal, verifyRuns } from '../../../src/evidence/journal.ts'
import { prunable } from '../../../src/evidence/prune.ts'
import { lockState } from '../../../src/gateway/state-lock.ts'
import { indexed, summary } from '../../evidence/runs.ts'
import { recordOf, specOf } from '../../experiments/guarded/world.ts'

const folder = await mkdtemp(join(tmpdir(), 'breakwater-prune-'))
after(() => rm(folder, { recursive: true, force: true }))

const DAY_MS = 86_400_000
const names = ['run-0', 'run-1', 'run-2', 'run-3', 'run-4']
let folders = 0

/** Makes a state folder with a record of five runs, run-0 the oldest; the index has the runs of `summarised`. */
async function stateWith(summarised: readonly string[] = names): Promise<string> {
  const state = join(folder, String(folders++))
  const { journal } = await RunJournal.open(journalFolder(state), await openKey(state))
  for (const [at, id] of names.entries()) {
    const endedAt = Date.now() - (names.length - at) * 10 * DAY_MS
    await journal.write({ ...recordOf(specOf(), { id, state: 'completed' }), endedAt })
  }
  await indexed(
    state,
    summarised.map((id, at) => summary(at, { id })),
  )
  return state
}

async function ask(state: string, ...args: string[]) {
  const lines: string[] = []
  const errors: string[] = []
  const out = { stdout: (line: string) => lines.push(line), stderr: (line: string) => errors.push(line) }
  const code = await runsCommand([...args, '--state', state], out, {})
  return { code, text: lines.join('\n'), errors: errors.join('\n') }
}

const check = async (state: string) => verifyRuns(journalFolder(state), await openKey(state))
const kept = async (state: string) =>
  (await keptRecords(journalFolder(state), await openKey(state))).map(({ id }) => id)

for (const { args, left } of [
  { args: ['--keep', '2'], left: ['run-3', 'run-4'] },
  { args: ['--keep', '0'], left: [] },
  { args: ['--keep', '9'], left: names },
  { args: ['--older', '25d'], left: ['run-3', 'run-4'] },
  { args: ['--older', '100d'], left: names },
])
  test(`runs prune ${args.join(' ')} leaves ${left.length} records, all summaries, and a whole journal`, async () => {
    const state = await stateWith()
    const dry = await ask(state, 'prune', ...args, '--dry-run')
    assert.deepEqual([dry.code, await kept(state)], [0, names], 'a dry run removes nothing')
    const { code, text } = await ask(state, 'prune', ...args)
    const gone = names.filter((id) => !left.includes(id))
    assert.equal(code, 0)
    for (const id of gone)
      assert.match(text, new RegExp(`^removes .* \\(${id}\\), ended .*run-00000\\d\\.json$`, 'm'))
    assert.match(text, new RegExp(`^removed ${gone.length} record`, 'm'))
    assert.deepEqual(await kept(state), left)
    assert.deepEqual(await check(state), { runs: left.length, open: 0, problems: [] })
    // The next gateway goes on with the chain.
    const { journal, problems } = await RunJournal.open(journalFolder(state), await openKey(state))
    await journal.write(recordOf(specOf(), { id: 'next', state: 'completed' }))
    assert.deepEqual([problems, await kept(state)], [[], [...left, 'next']])
    assert.deepEqual((await check(state)).problems, [])
    assert.equal((JSON.parse((await ask(state, 'verify', '--json')).text) as { runs: number }).runs, 5)
  })

test('a run says where its record is, as long as there is a record', async () => {
  const state = await stateWith()
  await ask(state, 'prune', '--keep', '1')
  const file = join(journalFolder(state), 'run-000005.json')
  assert.match((await ask(state, 'show', 'run-0')).text, /^record: removed from the journal$/m)
  assert.ok((await ask(state, 'show', 'run-4')).text.includes(`record: ${file}`))
  const listed = JSON.parse((await ask(state, 'list', '--json')).text) as {
    runs: { record: string | null }[]
  }
  assert.deepEqual(
    listed.runs.map(({ record }) => record),
    [null, null, null, null, file],
  )
  // Another document in the file is no record of the run.
  await writeFile(file, (await readFile(file, 'utf8')).replace('"state":"completed"', '"state":"aborted"'))
  assert.match((await ask(state, 'show', 'run-4')).text, /^record: removed from the journal$/m)
})

test('a record without a summary stays, and so do the later records', async () => {
  const state = await stateWith(['run-0', 'run-1', 'run-3', 'run-4'])
  const { code, text } = await ask(state, 'prune', '--keep', '0')
  assert.equal(code, 0)
  assert.match(text, /\(run-2\), ended .* is not in the index, so this record and the later ones stay/)
  assert.deepEqual(await kept(state), ['run-2', 'run-3', 'run-4'])
  assert.deepEqual((await check(state)).problems, [])
})

test('a state folder in use is refused, and nothing is removed', async () => {
  const state = await stateWith()
  const lock = await lockState(state)
  const refused = await ask(state, 'prune', '--keep', '1')
  assert.equal(refused.code, 1)
  assert.match(refused.errors, /a gateway uses .* \(process \d+\): stop the gateway first/)
  assert.deepEqual(await kept(state), names)
  await lock.release()
  assert.equal((await ask(state, 'prune', '--keep', '1')).code, 0)
})

test('a journal with problems stays as it is', async () => {
  const state = await stateWith()
  await rm(join(journalFolder(state), 'run-000002.json'))
  const { code, errors } = await ask(state, 'prune', '--keep', '1')
  assert.equal(code, 1)
  assert.match(errors, /the journal has problems, so no record is removed:\n.*run-000002\.json is missing/)
  assert.equal((await kept(state)).length, 4)
})

test('a process that ends while it removes records leaves a whole journal', async () => {
  const state = await stateWith()
  const last = join(journalFolder(state), 'run-000003.json')
  const text = await readFile(last)
  await ask(state, 'prune', '--keep', '2')
  // The head is written, and two of three files are removed.
  await writeFile(last, text)
  assert.deepEqual(await check(state), { runs: 3, open: 0, problems: [] })
  await ask(state, 'prune', '--keep', '2')
  assert.deepEqual(await kept(state), ['run-3', 'run-4'])
  assert.deepEqual((await readdir(journalFolder(state))).sort(), [
    'head.json',
    'run-000004.json',
    'run-000005.json',
  ])
})

test('prune needs one limit, and a folder with runs', async () => {
  const state = await stateWith()
  for (const args of [[], ['--keep', '1', '--older', '1d']])
    assert.equal((await ask(state, 'prune', ...args)).code, 2)
  assert.equal((await ask(join(folder, 'nothing'), 'prune', '--keep', '1')).code, 1)
})

test('only the oldest records can go: a younger record before an older one keeps both', () => {
  const all = [1, 9, 2].map((endedAt, at) => ({ id: `run-${at}`, name: 'n', endedAt, file: '' }))
  assert.deepEqual(prunable(all, { endedAfter: 5 }, () => true).records, [all[0]])
})
