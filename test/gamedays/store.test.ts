import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
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
  assert.deepEqual(await readGameDays(await folder(context)), { records: [], problems: [] })
})
