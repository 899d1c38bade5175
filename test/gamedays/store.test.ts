import assert from 'node:assert/strict'
import { mkdir, mkdtemp, open, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { GameDayStore, readGameDays } from '../../src/gamedays/store.ts'
import { dayRecord, planOf } from './days.ts'

async function folder(context: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'gamedays-'))
  context.after(() => rm(path, { recursive: true }))
  return path
}

const one = dayRecord(planOf(), { id: 'gd-1-0000000a' })
const two = dayRecord(planOf(), { id: 'gd-2-0000000b', startedAt: 1 })

test('GameDays are read as they were written, the oldest first', async (context) => {
  const state = await folder(context)
  const store = await GameDayStore.open(state)
  await Promise.all([store.write(two), store.write(one)])
  const { records, problems } = await readGameDays(state)
  // Undefined values do not survive JSON, and mean the same.
  assert.deepEqual(records, JSON.parse(JSON.stringify([one, two])))
  assert.deepEqual(problems, [])
})

test('the last of many writes is the one on disk', async (context) => {
  const state = await folder(context)
  const store = await GameDayStore.open(state)
  for (let at = 0; at < 50; at++) void store.write({ ...one, reason: `change ${at}` })
  await store.write({ ...one, reason: 'the last' })
  assert.deepEqual(
    (await readGameDays(state)).records.map(({ reason }) => reason),
    ['the last'],
  )
  assert.deepEqual(await readdir(join(state, 'gamedays')), ['gd-1-0000000a.json'])
})

test('a changed, cut, forged or renamed file is a problem, and the others are read', async (context) => {
  const state = await folder(context)
  const store = await GameDayStore.open(state)
  await store.write(one)
  await store.write(two)
  const path = join(state, 'gamedays', 'gd-1-0000000a.json')
  const text = await readFile(path, 'utf8')
  const damages: readonly (readonly [string, RegExp])[] = [
    [text.replace('Agents get', 'Agents got'), /was changed/],
    [text.slice(0, -20), /cut off/],
    ['', /holds no GameDay/],
    [text.replace(/"hash":"[0-9a-f]/, '"hash":"x'), /no line/],
    [await readFile(join(state, 'gamedays', 'gd-2-0000000b.json'), 'utf8'), /holds the GameDay gd-2/],
  ]
  for (const [damaged, why] of damages) {
    await writeFile(path, damaged)
    const { records, problems } = await readGameDays(state)
    assert.deepEqual(
      records.map(({ id }) => id),
      ['gd-2-0000000b'],
    )
    assert.match(problems[0]!.why, why)
  }
})

test('a write that fails is told, and the next one succeeds', async (context) => {
  const state = await folder(context)
  const store = await GameDayStore.open(state)
  await rm(join(state, 'gamedays'), { recursive: true })
  await assert.rejects(store.write(one), /ENOENT/)
  await GameDayStore.open(state)
  await store.write(one)
  assert.equal((await readGameDays(state)).records.length, 1)
})

test('a folder without GameDays is empty', async (context) => {
  assert.deepEqual(await readGameDays(await folder(context)), { records: [], problems: [], files: 0 })
})

test('each writer hears of a failed write, also when the writes became one', async (context) => {
  const state = await folder(context)
  const store = await GameDayStore.open(state)
  await rm(join(state, 'gamedays'), { recursive: true })
  const writes = Array.from({ length: 20 }, (_, at) => store.write({ ...one, reason: `change ${at}` }))
  const results = await Promise.allSettled(writes)
  assert.ok(results.every(({ status }) => status === 'rejected'))
})

test('a burst of changes is written a few times', async (context) => {
  const state = await folder(context)
  const store = await GameDayStore.open(state)
  const path = join(state, 'gamedays', `${one.id}.json`)
  const inodes = new Set<number>()
  const writes = Array.from({ length: 500 }, (_, at) => store.write({ ...one, reason: `change ${at}` }))
  for (const write of writes) {
    await write
    inodes.add((await stat(path)).ino)
  }
  assert.ok(inodes.size < 5, `${inodes.size} files`)
})

test('a record with the right hash and a wrong shape is a problem', async (context) => {
  const state = await folder(context)
  const store = await GameDayStore.open(state)
  const wrong = [
    { steps: undefined },
    { steps: [{ ...one.steps[0]!, name: 'unknown' }, ...one.steps.slice(1)] },
    { steps: one.steps.slice(1) },
    { startedAt: 9e15 },
    { state: 'asleep' },
    { plan: { ...one.plan, stop: undefined } },
    { plan: { ...one.plan, scope: { servers: 'a' } } },
    { events: [{ at: 'now', what: 'x', why: 'y' }] },
  ]
  for (const damage of wrong) {
    await store.write({ ...one, ...damage } as never)
    const { records, problems } = await readGameDays(state)
    assert.deepEqual([records.length, problems.length], [0, 1], JSON.stringify(damage))
    assert.equal(problems[0]!.why, 'holds no GameDay of this version')
  }
})

test('files of others are left alone, and named when they look like GameDays', async (context) => {
  const state = await folder(context)
  const store = await GameDayStore.open(state)
  await store.write(one)
  const place = (name: string) => join(state, 'gamedays', name)
  await writeFile(place('notes.txt'), 'notes')
  await writeFile(place('gd-1-0000000a.json.new'), 'half')
  await mkdir(place('gd-1-0000000d.json'))
  await symlink(place('gd-1-0000000e.json'), place('gd-1-0000000e.json'))
  const large = await open(place('gd-1-0000000f.json'), 'w')
  await large.truncate(2 ** 30)
  await large.close()
  const { records, problems } = await readGameDays(state)
  assert.deepEqual(
    records.map(({ id }) => id),
    [one.id],
  )
  assert.deepEqual(
    problems.map(({ why }) => /is no regular file|ELOOP|has 1GiB; at most 8MiB are read/.exec(why)?.[0]),
    ['is no regular file', 'ELOOP', 'has 1GiB; at most 8MiB are read'],
  )
})

test('a gateway reads the newest GameDays only, and knows how many there are', async (context) => {
  const state = await folder(context)
  const store = await GameDayStore.open(state)
  await Promise.all(
    Array.from({ length: 12 }, (_, at) =>
      store.write({ ...one, id: `gd-${at.toString(36)}-0000000a`, startedAt: at }),
    ),
  )
  const { records, files } = await readGameDays(state, 3)
  assert.deepEqual([records.map(({ startedAt }) => startedAt), files], [[9, 10, 11], 12])
})
