import assert from 'node:assert/strict'
import { chmod, mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { ClassicLevel } from 'classic-level'
import { type ClosableStore, openDurable } from '../../src/gateway/policy-context.ts'
import { OwnLevel } from '../support/level.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { isAlive, ownChildren } from '../support/processes.ts'
import { until } from '../support/until.ts'

const owner = { kind: 'kind', set: 'default', server: 'a' }
const FAR = Date.UTC(2030, 0, 1)

/** A folder, and a sequence of processes that open their store in the folder. */
async function setUp(t: TestContext) {
  const stateDir = await mkdtemp(join(tmpdir(), 'breakwater-store-'))
  t.after(() => rm(stateDir, { recursive: true, force: true }))
  const clock = new ManualClock()
  const { log, lines } = recordedLog()
  const stores: ClosableStore[] = []
  t.after(() => Promise.all(stores.map((store) => store.close())))
  const level = (folder: string) => new OwnLevel(folder)
  const open = async () => {
    const { store } = await openDurable({ stateDir, clock, log, level })
    if (store !== undefined) stores.push(store)
    return store
  }
  return { stateDir, folder: join(stateDir, 'records'), clock, lines, open }
}

/** Returns the content of a closed store. */
async function entriesIn(folder: string): Promise<Record<string, string>> {
  const level = new ClassicLevel(folder)
  const entries = await level.iterator().all()
  await level.close()
  return Object.fromEntries(entries)
}

test('a stored entry is there when the store is opened again, once and for its owner', async (t) => {
  const { open } = await setUp(t)
  const store = (await open())!
  await store.of(owner).put('one', { text: 'ä\n"' }, FAR)
  await store.of(owner).put('two', 1, FAR + 1)
  await store.of(owner).put('one', { text: 'newer' }, FAR + 2.5)
  await store.of({ ...owner, server: 'b' }).put('one', 'of another', FAR)
  await store.of(owner).put('three', 1, FAR)
  store.of(owner).delete('three')
  assert.deepEqual(store.of(owner).take(), [])
  await store.close()

  const again = (await open())!
  assert.deepEqual(again.of(owner).take(), [
    { id: 'two', value: 1, expiresAt: FAR + 1 },
    { id: 'one', value: { text: 'newer' }, expiresAt: FAR + 3 },
  ])
  assert.deepEqual(again.of(owner).take(), [])
  assert.equal(again.of({ ...owner, server: 'b' }).take().length, 1)
})

test('expired entries are deleted on read, and when nobody has taken them', async (t) => {
  const { open, clock, folder } = await setUp(t)
  const store = (await open())!
  const now = clock.wall()
  for (const [id, ms] of [
    ['short', 1_000],
    ['long', 90_000],
    ['longest', 500_000],
  ] as const)
    await store.of(owner).put(id, id, now + ms)
  await store.close()
  await clock.advance(1_000)
  await (await open())!.close()
  assert.equal(Object.keys(await entriesIn(folder)).length, 2)

  const last = (await open())!
  await clock.advance(120_000)
  assert.deepEqual(
    last
      .of(owner)
      .take()
      .map(({ id }) => id),
    ['longest'],
  )
  await last.close()
  assert.equal(Object.keys(await entriesIn(folder)).length, 1)
})

test('nobody but its owner may enter the folder, whatever was allowed before', async (t) => {
  const { open, folder } = await setUp(t)
  await mkdir(folder)
  await chmod(folder, 0o755)
  await open()
  assert.equal((await stat(folder)).mode & 0o777, 0o700)
})

test('a separate process owns the store, repairs the store, keeps entries, and is replaced when lost', async (t) => {
  const { stateDir, folder, clock, lines } = await setUp(t)
  const { log } = recordedLog()
  const before = ownChildren()
  const open = async () => (await openDurable({ stateDir, clock, log })).store!
  const first = await open()
  const large = 'x'.repeat(1024 ** 2)
  for (let n = 0; n < 5; n++) await first.of(owner).put(`k${n}`, large, FAR)
  const [pid] = ownChildren().filter((each) => !before.includes(each))
  process.kill(pid!, 'SIGKILL')
  await until('the process is gone', () => !isAlive(pid!))
  await clock.advance(5_000)
  await first.of(owner).put('later', 1, FAR)
  await clock.advance(5_000)
  await first.of(owner).put('last', 1, FAR)
  await first.close()
  await writeFile(join(folder, 'CURRENT'), 'damaged')
  const second = await open()
  assert.equal(second.of(owner).take().length, 7)
  await second.close()
  await until('no process is left', () => ownChildren().every((each) => before.includes(each)))
  assert.deepEqual(lines, [])
})

test('a store does without a folder that cannot be written to', async (t) => {
  const { open, folder, lines } = await setUp(t)
  await writeFile(folder, 'no folder')
  assert.equal(await open(), undefined)
  assert.equal(lines.at(-1)?.code, 'EEXIST')
})

test('a store that is damaged is repaired', async (t) => {
  const { open, folder, lines } = await setUp(t)
  const store = (await open())!
  await store.of(owner).put('one', 1, FAR)
  await store.close()
  await writeFile(join(folder, 'CURRENT'), 'damaged')
  const again = (await open())!
  assert.deepEqual(again.of(owner).take(), [{ id: 'one', value: 1, expiresAt: FAR }])
  assert.ok(lines.some(({ code, level }) => code === 'LEVEL_CORRUPTION' && level === 40))
})

test('without a folder there is no store', async () => {
  const { log, lines } = recordedLog()
  assert.deepEqual(await openDurable({ stateDir: undefined, clock: new ManualClock(), log }), {})
  assert.deepEqual(lines, [])
})

test('a failing write delays nobody, is logged once, and is repeated when the disk works again', async (t) => {
  const { open, clock, lines, folder } = await setUp(t)
  const store = (await open())!
  await store.of(owner).put('kept', 1, FAR)
  const { batch } = ClassicLevel.prototype
  t.after(() => (ClassicLevel.prototype.batch = batch))
  let tries = 0
  ClassicLevel.prototype.batch = (() => {
    tries++
    return Promise.reject(Object.assign(new Error('No space left on device'), { code: 'LEVEL_IO_ERROR' }))
  }) as unknown as typeof batch
  await store.of(owner).put('one', 'old', FAR)
  await store.of(owner).put('one', 'new', FAR)
  store.of(owner).delete('kept')
  assert.equal(tries, 1)
  await clock.advance(5_000)
  await store.of(owner).put('two', 2, FAR)
  assert.equal(tries, 2)
  assert.equal(lines.filter(({ msg }) => /cannot write to the store/.test(String(msg))).length, 1)

  ClassicLevel.prototype.batch = batch
  await clock.advance(5_000)
  await store.of(owner).put('three', 3, FAR)
  assert.match(String(lines.at(-1)?.msg), /can be written to again/)
  await store.close()
  const values = Object.values(await entriesIn(folder)).map((text) => text.slice(text.indexOf(' ') + 1))
  assert.deepEqual(values.sort(), ['"new"', '2', '3'])
})

test('entries that a disk refuses are held up to 16 MiB; entries deleted meanwhile stay deleted', async (t) => {
  const { open, clock, folder } = await setUp(t)
  const store = (await open())!
  const { batch } = ClassicLevel.prototype
  t.after(() => (ClassicLevel.prototype.batch = batch))
  ClassicLevel.prototype.batch = (() => Promise.reject(new Error('full'))) as unknown as typeof batch
  const large = 'x'.repeat(1024 ** 2)
  for (let n = 0; n < 40; n++) await store.of(owner).put(`k${n}`, large, FAR)
  store.of(owner).delete('k0')
  ClassicLevel.prototype.batch = batch
  await clock.advance(5_000)
  await store.close()
  const keys = Object.keys(await entriesIn(folder)).map((key) => key.split('\n')[1])
  assert.deepEqual(keys.length, 14)
  assert.ok(!keys.includes('k0'))
})

test('a write that fails while the store closes is tried once more', async (t) => {
  const { open, folder } = await setUp(t)
  const store = (await open())!
  const { batch } = ClassicLevel.prototype
  t.after(() => (ClassicLevel.prototype.batch = batch))
  let fail = () => undefined as void
  ClassicLevel.prototype.batch = (() =>
    new Promise((_, reject) => {
      fail = () => reject(new Error('full'))
    })) as unknown as typeof batch
  const put = store.of(owner).put('one', 1, FAR)
  const closed = store.close()
  ClassicLevel.prototype.batch = batch
  fail()
  await Promise.all([put, closed])
  assert.equal(Object.keys(await entriesIn(folder)).length, 1)
})

test('a disk that takes forever keeps nobody waiting for longer than a second, nor the end of the process', async (t) => {
  const { open, clock } = await setUp(t)
  const store = (await open())!
  const { batch } = ClassicLevel.prototype
  t.after(() => (ClassicLevel.prototype.batch = batch))
  ClassicLevel.prototype.batch = (() => new Promise(() => undefined)) as unknown as typeof batch
  let written = false
  void store
    .of(owner)
    .put('one', 1, FAR)
    .then(() => (written = true))
  await clock.advance(999)
  assert.equal(written, false)
  await clock.advance(1)
  assert.equal(written, true)
  let closed = false
  void store.close().then(() => (closed = true))
  await clock.advance(2_000)
  assert.equal(closed, true)
})

test('in a full store no record that counts makes room: new ones are not kept, until others have expired', async (t) => {
  const { open, folder, clock, lines } = await setUp(t)
  const store = (await open())!
  const records = store.of(owner)
  const large = 'x'.repeat(1024 ** 2)
  const soon = clock.wall() + 60_000
  const put = async (first: number, last: number, expiresAt: number) => {
    for (let n = first; n < last; n++) await records.put(`k${n}`, large, expiresAt)
  }
  await put(0, 4, soon)
  await put(4, 130, FAR)
  // Something smaller fits in its place, though the store is full.
  await records.put('k1', 1, FAR)
  assert.equal(lines.filter(({ msg }) => /the store is full/.test(String(msg))).length, 1)
  await clock.advance(60_000)
  await put(130, 132, FAR)
  await store.close()
  const keys = new Set(Object.keys(await entriesIn(folder)).map((key) => key.split('\n')[1]))
  assert.deepEqual(
    ['k0', 'k1', 'k2', 'k4', 'k126', 'k127', 'k129', 'k130', 'k131'].filter((key) => keys.has(key)),
    ['k1', 'k4', 'k126', 'k130', 'k131'],
  )
})
