import assert from 'node:assert/strict'
import { createHmac, createSecretKey } from 'node:crypto'
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, unlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { RunJournal, verifyRuns } from '../../src/evidence/journal.ts'
import { recordOf, specOf, stage } from '../experiments/guarded/world.ts'

const key = createSecretKey(Buffer.alloc(32, 7))

async function folderOf(t: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-runs-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  return folder
}

const run = (id: string, state: 'running' | 'completed' = 'completed') => recordOf(specOf(), { id, state })

const why = async (folder: string) =>
  (await verifyRuns(folder, key)).problems.map(({ file, why }) => `${file.slice(folder.length + 1)} ${why}`)

test('runs are sealed in a chain, which another process goes on with', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  await journal.write(run('a', 'running'))
  assert.deepEqual(await readdir(folder), ['head.json', 'open-a.json'])
  await journal.write(run('a'))
  await journal.write(run('b'))
  const again = await RunJournal.open(folder, key)
  assert.deepEqual(
    again.runs.map(({ id }) => id),
    ['a', 'b'],
  )
  await again.journal.write(run('c'))
  assert.deepEqual(await verifyRuns(folder, key), { runs: 3, open: 0, problems: [] })
})

test('a run that was changed, taken out, or put in is found', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  for (const id of ['a', 'b', 'c']) await journal.write(run(id))
  const path = join(folder, 'run-000002.json')
  const text = await readFile(path, 'utf8')
  await writeFile(path, text.replace('"state":"completed"', '"state":"aborted"'))
  assert.deepEqual(await why(folder), ['run-000002.json was changed: its hash does not match'])
  await unlink(path)
  assert.deepEqual(await why(folder), ['run-000002.json is missing'])
  await writeFile(path, await readFile(join(folder, 'run-000001.json'), 'utf8'))
  assert.match((await why(folder))[0]!, /^run-000002\.json contains run 1$/)
  await writeFile(path, text)
  assert.deepEqual(await why(folder), [])
  await unlink(join(folder, 'run-000003.json'))
  assert.deepEqual(await why(folder), ['run-000003.json is missing'], 'the end cannot be cut off')
})

test('a head not made with the key is invalid', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  await journal.write(run('a'))
  const path = join(folder, 'head.json')
  await writeFile(path, (await readFile(path, 'utf8')).replace('"seq":1', '"seq":0'))
  assert.deepEqual(await why(folder), ['head.json is missing, or was not made with the key'])
})

/** Text of an unfinished run, as a key owner would write. */
function openText(record: unknown): string {
  const json = JSON.stringify(record)
  const mac = createHmac('sha256', key).update('experiment\n').update(`open\n${json}`).digest('hex')
  return `{"mac":"${mac}",\n"open":${json}}\n`
}

for (const { what, text, says } of [
  {
    what: 'without a hash',
    text: JSON.stringify({ record: run('forged') }),
    says: 'was not made with the key',
  },
  {
    what: 'that is over, with the hash of nothing',
    text: `{"mac":"${'0'.repeat(64)}",\n"open":${JSON.stringify(run('forged'))}}\n`,
    says: 'was not made with the key',
  },
  { what: 'with nothing in it', text: openText({ format: 1 }), says: 'is no record of a run' },
  {
    what: 'with a state that there is not',
    text: openText({ ...run('forged'), state: 'splendid' }),
    says: 'is no record of a run',
  },
  {
    what: 'whose time is no date',
    text: openText({ ...run('forged'), beganAt: 1e300 }),
    says: 'is no record of a run',
  },
  {
    what: 'whose id is a path',
    text: openText({ ...run('forged'), id: '../../pwn' }),
    says: 'is no record of a run',
  },
  {
    what: 'under the name of another one',
    text: openText(run('other', 'running')),
    says: 'contains run other',
  },
])
  test(`an open document ${what} is put aside, and neither shown, counted nor sealed`, async (t) => {
    const folder = await folderOf(t)
    await RunJournal.open(folder, key)
    await writeFile(join(folder, 'open-forged.json'), text)
    assert.deepEqual(await verifyRuns(folder, key), {
      runs: 0,
      open: 0,
      problems: [{ file: join(folder, 'open-forged.json'), why: says }],
    })
    const { runs, problems } = await RunJournal.open(folder, key)
    assert.deepEqual([runs.length, problems.map(({ why }) => why)], [0, [says]])
    assert.deepEqual(await readdir(folder), ['head.json', 'open-forged.json.damaged'])
    assert.deepEqual(await why(folder), [
      'open-forged.json.damaged was put aside when the journal was opened: its check failed',
    ])
  })

test('entries other than files are not read', async (t) => {
  const folder = await folderOf(t)
  await RunJournal.open(folder, key)
  await mkdir(join(folder, 'open-a.json'))
  await mkdir(join(folder, 'run-000001.json'))
  const { runs, problems } = await RunJournal.open(folder, key)
  assert.deepEqual(
    [runs, problems.map(({ why }) => why)],
    [[], ['was not made with the key', 'is no sealed run']],
  )
})

test('a run is not written under a name that is a path', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  for (const state of ['running', 'completed'] as const)
    await assert.rejects(journal.write(run('../pwn', state)), /"\.\.\/pwn" is no id of a run/)
  assert.deepEqual(await readdir(folder), ['head.json'])
})

test('an open run that is over is sealed unchanged', async (t) => {
  const folder = await folderOf(t)
  await RunJournal.open(folder, key)
  await writeFile(join(folder, 'open-a.json'), openText(run('a')))
  const { runs } = await RunJournal.open(folder, key)
  assert.deepEqual(
    runs.map(({ id, state }) => [id, state]),
    [['a', 'completed']],
  )
  assert.deepEqual(await readdir(folder), ['head.json', 'run-000001.json'])
  assert.deepEqual(await verifyRuns(folder, key), { runs: 1, open: 0, problems: [] })
})

test('runs are records of runs, at each of their steps and however they end', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  for (const failing of [0, 1]) {
    const { lifecycle, rules, until, heard } = stage(specOf({ estimate: { outcome: 'completed' } }), {
      id: `r${failing}`,
    })
    lifecycle.begin()
    await until('stage', 1)
    rules.fares.treatment.failing = failing
    lifecycle.noticed('breaker a/t open')
    lifecycle.probed({ server: 'a', state: 'failing', reason: 'timeout', tookMs: 3 })
    await until('over')
    for (const record of heard) {
      await journal.write(record)
      assert.deepEqual(await why(folder), [], JSON.stringify(record))
    }
  }
  const { runs, problems } = await RunJournal.open(folder, key)
  assert.deepEqual([runs.map(({ state }) => state), problems], [['completed', 'aborted'], []])
})

test('a sealed file that is not the record of a run is not shown', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  await journal.write({ ...run('a'), reason: undefined as never })
  const { runs, problems } = await RunJournal.open(folder, key)
  assert.deepEqual(
    [runs, problems.map(({ why }) => why)],
    [[], ['is sealed, but contains no record of a run']],
  )
})

test('an unfinished write is removed', async (t) => {
  const folder = await folderOf(t)
  const drafts = ['head.json.new', 'open-a.json.new', 'run-000001.json.new', 'probe.new']
  for (const name of [...drafts, 'mine.new']) await writeFile(join(folder, name), '')
  const { problems } = await RunJournal.open(folder, key)
  assert.deepEqual([problems, await readdir(folder)], [[], ['head.json', 'mine.new']])
})

test('a journal has a head from the first opening on: a missing head means damage', async (t) => {
  const folder = await folderOf(t)
  await RunJournal.open(folder, key)
  assert.deepEqual(await why(folder), [])
  await unlink(join(folder, 'head.json'))
  assert.deepEqual(await why(folder), ['head.json is missing, or was not made with the key'])
})

for (const { what, spoil } of [
  { what: 'is gone', spoil: (path: string) => unlink(path) },
  { what: 'was not made with the key', spoil: (path: string) => writeFile(path, '{}') },
])
  test(`a journal remembers that its head ${what}, after any later runs`, async (t) => {
    const folder = await folderOf(t)
    const { journal } = await RunJournal.open(folder, key)
    for (const id of ['a', 'b', 'c']) await journal.write(run(id))
    await unlink(join(folder, 'run-000003.json'))
    await spoil(join(folder, 'head.json'))
    const again = await RunJournal.open(folder, key)
    assert.equal(again.problems.length, 1)
    await again.journal.write(run('d'))
    const last = await RunJournal.open(folder, key)
    await last.journal.write(run('e'))
    const found = await why(folder)
    assert.ok(
      found.includes(
        'head.json records earlier damage: the head was missing, or was not made with the key: there may have been more runs than the 2 up to run 2',
      ),
      found.join('\n'),
    )
  })

test('a head older than the runs is damage, and stays recorded as damage', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  await journal.write(run('a'))
  const old = await readFile(join(folder, 'head.json'))
  for (const id of ['b', 'c', 'd']) await journal.write(run(id))
  await unlink(join(folder, 'run-000004.json'))
  await writeFile(join(folder, 'head.json'), old)
  assert.deepEqual(await why(folder), ['head.json lists 1 run, but run 3 exists: this is an older head'])
  const again = await RunJournal.open(folder, key)
  await again.journal.write(run('e'))
  assert.deepEqual(await why(folder), [
    'head.json records earlier damage: an older head, of 1 run, was found: there may have been more runs than 3',
  ])
})

test('a run that is not over is found again, and one that was sealed is not found twice', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  await journal.write(run('a', 'running'))
  const left = await readFile(join(folder, 'open-a.json'), 'utf8')
  const again = await RunJournal.open(folder, key)
  assert.deepEqual(
    again.runs.map(({ id, state }) => [id, state]),
    [['a', 'running']],
  )
  await again.journal.write(run('a'))
  // The process ended before removing the draft.
  await writeFile(join(folder, 'open-a.json'), left)
  const last = await RunJournal.open(folder, key)
  assert.deepEqual(
    last.runs.map(({ state }) => state),
    ['completed'],
  )
})

test('an unfinished run taken away is missing, and stays recorded as missing', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  for (const id of ['a', 'b']) await journal.write(run(id, 'running'))
  await journal.write(run('b'))
  assert.deepEqual(await why(folder), [])
  await unlink(join(folder, 'open-a.json'))
  assert.deepEqual(await why(folder), ['open-a.json is missing'])
  const again = await RunJournal.open(folder, key)
  assert.deepEqual(
    again.problems.map(({ why }) => why),
    ['is missing'],
  )
  const kept = 'head.json records earlier damage: the unfinished run a was missing'
  assert.deepEqual(await why(folder), [kept])
  await again.journal.write(run('c', 'running'))
  await again.journal.write(run('c'))
  assert.deepEqual(await why(folder), [kept])
})

test('an old head without a list of unfinished runs gets the list from then on', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  await journal.write(run('a', 'running'))
  const json = JSON.stringify({ seq: 0, oldest: 1, hash: '0'.repeat(64), damage: [] })
  const mac = createHmac('sha256', key).update('experiment\n').update(`head\n${json}`).digest('hex')
  await writeFile(join(folder, 'head.json'), `{"mac":"${mac}",\n"head":${json}}\n`)
  assert.deepEqual((await RunJournal.open(folder, key)).problems, [])
  await unlink(join(folder, 'open-a.json'))
  assert.deepEqual(await why(folder), ['open-a.json is missing'])
})

test('a run that was sealed when the process ended before the head was written is part of the chain', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  await journal.write(run('a'))
  const head = await readFile(join(folder, 'head.json'), 'utf8')
  await journal.write(run('b'))
  await writeFile(join(folder, 'head.json'), head)
  const again = await RunJournal.open(folder, key)
  await again.journal.write(run('c'))
  assert.deepEqual(await verifyRuns(folder, key), { runs: 3, open: 0, problems: [] })
})

test('past 200 runs the oldest go, and nothing is missing', async (t) => {
  const folder = await folderOf(t)
  const { journal } = await RunJournal.open(folder, key)
  for (let n = 0; n < 203; n++) await journal.write(run(`r${n}`))
  const { runs, problems } = await verifyRuns(folder, key)
  assert.deepEqual([runs, problems], [200, []])
  assert.ok(!(await readdir(folder)).includes('run-000003.json'))
})

test('a folder that cannot be written is refused', async (t) => {
  if (process.getuid?.() === 0) return t.skip('root may write anywhere')
  const folder = await folderOf(t)
  await chmod(folder, 0o500)
  await assert.rejects(RunJournal.open(folder, key), /EACCES/)
})

test('a folder that is a file is refused', async (t) => {
  const folder = await folderOf(t)
  await writeFile(join(folder, 'experiments'), '')
  await assert.rejects(RunJournal.open(join(folder, 'experiments'), key), /EEXIST/)
})

test('an unfinished run that cannot be used does not replace an earlier one that was put aside', async (t) => {
  const folder = await folderOf(t)
  await RunJournal.open(folder, key)
  for (const text of ['first', 'second']) {
    await writeFile(join(folder, 'open-forged.json'), text)
    await RunJournal.open(folder, key)
  }
  assert.equal(await readFile(join(folder, 'open-forged.json.damaged'), 'utf8'), 'first')
  assert.equal(await readFile(join(folder, 'open-forged.json.damaged.2'), 'utf8'), 'second')
  assert.equal((await why(folder)).length, 2, 'both stay problems')
})
