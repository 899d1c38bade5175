import assert from 'node:assert/strict'
import { execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import {
  ChainFile,
  type ChainPlace,
  checkedRecords,
  keepDamaged,
} from '../../../src/chaos/journal/chain-file.ts'
import { drained, parseRecord } from '../../../src/chaos/journal/read-chain.ts'
import { placeOf } from './chain-place.ts'

async function folderOf(t: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'chain-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  return folder
}

/** Reads a chain; returns its records and the check. */
async function read(place: ChainPlace) {
  const records: object[] = []
  const check = await drained(checkedRecords(place, parseRecord), (record) => records.push(record))
  return { records, ...check }
}

/** Writes a chain with these records, one at a time. */
async function written(place: ChainPlace, records: readonly object[]): Promise<void> {
  const file = await ChainFile.begin(place)
  for (const record of records) await file.append([record])
  await file.close()
}

const numbered = (count: number) => Array.from({ length: count }, (_, n) => ({ n }))

test('a chain is read as written, whatever the length of its lines', async (t) => {
  const place = placeOf(await folderOf(t))
  const records = [0, 1, 131_000, 131_072, 140_000, 600_000, 3].map((length) => ({
    text: 'é'.repeat(length),
  }))
  await written(place, records)
  const { records: found, damage, chain } = await read(place)
  assert.deepEqual([found.length, damage, chain?.hashes.length], [7, undefined, 8])
  assert.deepEqual(found, records)
})

test('a line longer than 16 MiB is damage, and is not read', async (t) => {
  const place = placeOf(await folderOf(t))
  await written(place, numbered(2))
  await writeFile(place.path, Buffer.alloc(17 * 1024 ** 2, 'x'), { flag: 'a' })
  const { records, damage } = await read(place)
  assert.equal(records.length, 2)
  assert.match(String(damage), /^line 4 of .* is longer than 16777216 bytes$/)
})

test('a process killed at any time leaves a chain without damage, with each line that was told', async (t) => {
  const folder = await folderOf(t)
  let told = 0
  for (let kills = 1; kills <= 3; kills++) {
    const writer = fork(new URL('./chain-writer.js', import.meta.url), [folder])
    const until = told + 20 * kills
    writer.on('message', (n: number) => {
      told = n
      if (n >= until) writer.kill('SIGKILL')
    })
    await once(writer, 'close')
    const { records, damage } = await read(placeOf(folder))
    assert.equal(damage, undefined)
    assert.ok(records.length >= told, `${records.length} of ${told} lines`)
  }
})

test('a process that ends between a line and the head leaves the line', async (t) => {
  const folder = await folderOf(t)
  const place = placeOf(folder)
  await written(place, numbered(3))
  const head = await readFile(place.headPath)
  const { chain } = await read(place)
  const file = await ChainFile.continue(place, chain!)
  await file.append([{ n: 3 }])
  await file.close()
  await writeFile(place.headPath, head)
  const opened = await read(place)
  assert.deepEqual([opened.records, opened.damage], [numbered(4), undefined])
  // The next process protects the line at once.
  await (await ChainFile.continue(place, opened.chain!)).close()
  await truncate(place.path, opened.chain!.bytes - 1)
  assert.match(String((await read(place)).damage), /is older than its head/)
})

test('a line without an end is cut, also before a shorter line', async (t) => {
  const place = placeOf(await folderOf(t))
  await written(place, numbered(2))
  await writeFile(place.path, `{"hash":"${'0'.repeat(500)}`, { flag: 'a' })
  const { chain, damage } = await read(place)
  assert.deepEqual([chain?.cutBytes, damage], [509, undefined])
  const file = await ChainFile.continue(place, chain!)
  await file.append([{ n: 2 }])
  await file.close()
  const next = await read(place)
  assert.deepEqual([next.records, next.damage, next.chain?.cutBytes], [numbered(3), undefined, 0])
})

test('a new chain replaces the earlier chain as a whole', async (t) => {
  const folder = await folderOf(t)
  const place = placeOf(folder)
  await written(place, numbered(2))
  const before = await readFile(place.path)
  // A process ended while writing the draft: the earlier chain is still there.
  await writeFile(`${place.path}.new`, '{"hash":"')
  assert.deepEqual((await read(place)).records, numbered(2))
  assert.deepEqual(await readFile(place.path), before)
  await (await ChainFile.begin(place, [{ at: 7 }])).close()
  assert.deepEqual((await read(place)).records, [{ at: 7 }])
  assert.deepEqual((await readdir(folder)).sort(), ['chain.head', 'chain.jsonl'])
})

for (const [what, change] of [
  ['without a file', (place: ChainPlace) => rm(place.path)],
  ['without a head', (place: ChainPlace) => rm(place.headPath)],
  ['without bytes', (place: ChainPlace) => truncate(place.path, 0)],
  ['with a part of its first line only', (place: ChainPlace) => truncate(place.path, 20)],
  [
    'whose head is of another key',
    (place: ChainPlace) => writeFile(place.headPath, '{"mac":"00","head":{}}'),
  ],
] as const)
  test(`a chain ${what} is damaged`, async (t) => {
    const place = placeOf(await folderOf(t))
    await written(place, numbered(2))
    await change(place)
    assert.notEqual((await read(place)).damage, undefined)
  })

test('a chain that was never written is damage only where a chain is expected', async (t) => {
  const place = placeOf(await folderOf(t))
  assert.deepEqual(await read(place), { records: [], chain: undefined, damage: undefined })
  const { damage } = await drained(checkedRecords(place, parseRecord, true))
  assert.match(String(damage), /is missing$/)
})

test('damaged chains are kept aside, the first four and the latest', async (t) => {
  const folder = await folderOf(t)
  const place = placeOf(folder)
  for (let n = 1; n <= 7; n++) {
    await writeFile(place.path, `damaged ${n}`)
    await keepDamaged(place.path)
    assert.equal(await readFile(place.path, 'utf8'), `damaged ${n}`, 'a new chain replaces the file later')
  }
  const kept = ['', '.2', '.3', '.4', '.5'].map((end) => readFile(`${place.path}.damaged${end}`, 'utf8'))
  assert.deepEqual(
    await Promise.all(kept),
    [1, 2, 3, 4, 7].map((n) => `damaged ${n}`),
  )
})

test('a full disk leaves no part of a line, and a later shorter line continues the chain', async (t) => {
  const folder = await folderOf(t)
  const disk = join(folder, 'disk')
  await mkdir(disk)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', disk], { stdio: 'ignore' })
  } catch {
    t.skip('mounting needs root')
    return
  }
  try {
    const place = { ...placeOf(disk), headPath: placeOf(folder).headPath }
    const file = await ChainFile.begin(place)
    await file.append([{ n: 0 }])
    await assert.rejects(file.append([{ text: 'x'.repeat(100_000) }]), /ENOSPC/)
    await file.append([{ n: 1 }])
    await file.close()
    const { records, damage, chain } = await read(place)
    assert.deepEqual([records, damage, chain?.cutBytes], [numbered(2), undefined, 0])
  } finally {
    execFileSync('umount', [disk])
  }
})
