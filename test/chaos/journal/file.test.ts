import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { appendFile, mkdir, mkdtemp, readdir, readFile, rm, rmdir, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import type { Line } from '../../../src/chaos/journal/chain.ts'
import type { ControlEntry, DecisionEntry } from '../../../src/chaos/journal/entry.ts'
import { readKey } from '../../../src/chaos/journal/head.ts'
import { JournalFile, type JournalFileParts } from '../../../src/chaos/journal/file.ts'
import { verifyJournal } from '../../../src/chaos/journal/verify.ts'
import { readChain } from '../../../src/chaos/journal/read-chain.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/until.ts'
import { toolCall } from '../../support/caller.ts'
import { answer, fault, rig } from '../rig.ts'

async function setUp(t: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), 'journal-'))
  t.after(() => rm(folder, { recursive: true }))
  const path = join(folder, 'chaos.jsonl')
  const clock = new ManualClock()
  const errors: string[] = []
  let dropped = 0
  const open = (more: Partial<JournalFileParts> = {}) =>
    new JournalFile({
      path,
      keptIn: folder,
      maxSize: 1024 ** 2,
      keep: 2,
      clock,
      onError: (why) => void errors.push(why),
      onDropped: (count) => void (dropped += count),
      ...more,
    })
  return { folder, path, clock, errors, open, dropped: () => dropped }
}

const entry = (seq: number): ControlEntry => ({ kind: 'control', seq, at: 0, type: 'armed', by: 'me' })

/** Returns the chain of a file whose key is in the same folder. */
async function linesOf(path: string) {
  const { lines, broken, cutBytes, ...chain } = (await readChain(path, await readKey(dirname(path))))!
  assert.deepEqual([broken, cutBytes], [undefined, 0])
  return { ...chain, lines, last: chain.hashes.at(-1) }
}

const seqs = (lines: readonly object[]) => lines.flatMap((line) => ('seq' in line ? [line.seq] : []))

test('entries are appended a moment later, as a chain that holds', async (t) => {
  const { path, clock, open } = await setUp(t)
  const file = open()
  for (const seq of [1, 2, 3]) file.append(entry(seq))
  await assert.rejects(stat(path))
  await clock.advance(100)
  await file.close()
  assert.deepEqual(seqs((await linesOf(path)).lines), [1, 2, 3])
  assert.equal((await stat(path)).mode & 0o777, 0o600)
})

test('many entries are written in batches, and others get a turn between them', async (t) => {
  const { path, open } = await setUp(t)
  const file = open()
  for (let seq = 1; seq <= 1_700; seq++) file.append(entry(seq))
  let written = 0
  let most = 0
  let over = false
  void file.flush().then(() => (over = true))
  while (!over) {
    await setImmediate()
    const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n').length - 1 : 0
    most = Math.max(most, lines - written)
    written = lines
  }
  assert.equal(seqs((await linesOf(path)).lines).length, 1_700)
  assert.ok(most <= 501, `${most} lines at a time`)
})

test('past its size a new file is begun, the chain goes on in it, and the oldest are dropped', async (t) => {
  const { path, open } = await setUp(t)
  const file = open({ maxSize: 1_000 })
  for (let seq = 1; seq <= 40; seq++) {
    file.append(entry(seq))
    await file.flush()
  }
  const [newest, older, oldest] = await Promise.all([
    linesOf(path),
    linesOf(`${path}.1`),
    linesOf(`${path}.2`),
  ])
  await assert.rejects(stat(`${path}.3`))
  assert.equal(newest.header?.previous, older.last)
  assert.equal(older.header?.previous, oldest.last)
  assert.deepEqual(
    [newest, older].map(({ header }) => header?.file),
    [oldest.header!.file + 2, oldest.header!.file + 1],
  )
  const kept = [oldest, older, newest].flatMap(({ lines }) => seqs(lines))
  assert.deepEqual(
    kept,
    Array.from({ length: kept.length }, (_, index) => 41 - kept.length + index),
  )
})

test('another process goes on with the chain', async (t) => {
  const { path, open } = await setUp(t)
  for (const seq of [1, 2, 3]) {
    const file = open()
    file.append(entry(seq))
    await file.close()
  }
  assert.deepEqual(seqs((await linesOf(path)).lines), [1, 2, 3])
})

test('two processes with one journal are reported, and do not break its chain', async (t) => {
  const { path, clock, errors, open } = await setUp(t)
  const files = [open(), open()]
  for (let seq = 1; seq <= 6; seq++) {
    const file = files[seq % 2]!
    file.append(entry(seq))
    await file.flush()
    await clock.advance(1_000)
    await file.flush()
  }
  for (const file of files) await file.close()
  assert.deepEqual(seqs((await linesOf(path)).lines), [1, 2, 3, 4, 5, 6])
  assert.match(errors[0]!, /has \d+ bytes, not \d+: another process writes to it$/)
  assert.deepEqual((await verifyJournal(path, dirname(path))).problems, [])
})

test('a damaged file is put aside, not gone on with', async (t) => {
  const { path, open, errors, dropped } = await setUp(t)
  await writeFile(path, '{"hash":"')
  const file = open()
  file.append(entry(1))
  await file.close()
  assert.equal(await readFile(`${path}.damaged`, 'utf8'), '{"hash":"')
  assert.deepEqual(seqs((await linesOf(path)).lines), [1])
  assert.match(errors[0] ?? '', /has no head; it is kept as/)
  assert.equal(dropped(), 1)
  await writeFile(path, 'damaged again')
  const again = open()
  again.append(entry(2))
  await again.close()
  assert.equal(await readFile(`${path}.damaged`, 'utf8'), '{"hash":"', 'the first damaged file stays')
  assert.equal(await readFile(`${path}.damaged.2`, 'utf8'), 'damaged again')
})

test('a line cut off during its write is removed, and counted as missing', async (t) => {
  const { path, open, errors, dropped } = await setUp(t)
  const first = open()
  for (const seq of [1, 2]) first.append(entry(seq))
  await first.close()
  await appendFile(path, '{"hash":"0123')
  const second = open()
  second.append(entry(3))
  await second.close()
  const { lines } = await linesOf(path)
  assert.deepEqual(
    lines.map((line) => (line.kind === 'gap' ? line.dropped : line.kind)),
    ['header', 'control', 'control', 1, 'control'],
  )
  assert.deepEqual([errors, dropped()], [[], 1])
})

test('while the disk refuses, entries wait in bounded memory, and the journal says how many are missing', async (t) => {
  const { path, folder, clock, errors, open, dropped } = await setUp(t)
  await mkdir(path)
  const file = open()
  file.append(entry(1))
  await file.flush()
  assert.match(errors[0] ?? '', /is no regular file/)
  for (let seq = 2; seq <= 1_500; seq++) file.append(entry(seq))
  for (let second = 0; second < 5; second++) {
    await clock.advance(1_000)
    await file.flush()
  }
  assert.equal(errors.length, 1, 'told once')
  assert.equal(dropped(), 500)
  await rmdir(path)
  await file.close()
  const { lines } = await linesOf(path)
  assert.deepEqual(
    lines.slice(0, 2).map((line) => (line.kind === 'gap' ? line.dropped : line.kind)),
    ['header', 500],
  )
  assert.deepEqual(
    seqs(lines),
    Array.from({ length: 1_000 }, (_, index) => index + 1),
  )
  assert.equal(clock.pending, 0)
  assert.ok((await readdir(folder)).every((name) => !name.includes('damaged')))
})

test('a full disk keeps no partial line for good, and is written to again once there is room', async (t) => {
  const { folder, clock, errors, open, dropped } = await setUp(t)
  const disk = join(folder, 'disk')
  await mkdir(disk)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', disk], { stdio: 'ignore' })
  } catch {
    return t.skip('only root may make a disk that is small')
  }
  try {
    const path = join(disk, 'chaos.jsonl')
    // The key and the head are in another folder: the state folder may be on another disk.
    const file = open({ path })
    const began = performance.now()
    for (let seq = 1; seq <= 3_000; seq++) {
      file.append(entry(seq))
      if (seq % 100 === 0) await file.flush()
    }
    t.diagnostic(`3,000 entries at a full disk of 64 KiB took ${(performance.now() - began).toFixed(0)} ms`)
    assert.match(errors.join(), /^ENOSPC/)
    assert.equal(errors.length, 1)
    const lost = dropped()
    assert.ok(lost > 0)
    execFileSync('mount', ['-o', 'remount,size=4m', disk])
    await clock.advance(1_000)
    await file.close()
    const { lines } = (await readChain(path, await readKey(folder)))!
    const gaps = lines.flatMap((line) => (line.kind === 'gap' ? [line.dropped] : []))
    assert.deepEqual(gaps, [lost])
    assert.equal(seqs(lines).length + lost, 3_000)
    assert.deepEqual((await verifyJournal(path, folder)).problems, [])
  } finally {
    execFileSync('umount', [disk])
  }
})

test('the journal of a plan goes to its file, also when a reload moves it', async (t) => {
  const { folder, path } = await setUp(t)
  const second = join(folder, 'second.jsonl')
  const { arm, apply, send, controller, clock } = rig()
  const faults = [fault('a', 'test.spoil')]
  arm(faults, { journal: { file: path } })
  await send(toolCall('t'))
  apply({ enabled: true, faults, journal: { file: second } })
  await send(toolCall('t'))
  await controller.close()
  await until('both entries are written', () => existsSync(second))
  const kinds = async (file: string) =>
    (await linesOf(file)).lines.map((line) => ('type' in line ? line.type : line.kind))
  assert.deepEqual(await kinds(path), ['header', 'armed', 'test.spoil'])
  assert.deepEqual(await kinds(second), ['header', 'plan', 'test.spoil', 'disarmed'])
  assert.equal(clock.pending, 0)
})

test('calls that end after the chaos mesh has stopped are in the journal until the journal is closed', async (t) => {
  const { path } = await setUp(t)
  const { arm, send, account, controller } = rig()
  arm([fault('a', 'test.spoil')], { journal: { file: path } })
  const call = toolCall('t')
  const outcome = await send(call)
  await controller.stop()
  account(call, outcome)
  await controller.close()
  const { lines } = await linesOf(path)
  assert.deepEqual(
    decisionsIn(lines).map(({ fate }) => fate),
    ['escaped'],
  )
})

/** Returns the decisions in a file's lines, with their results, which follow further down in the file. */
function decisionsIn(lines: readonly Line[]): readonly DecisionEntry[] {
  const decisions: DecisionEntry[] = []
  // Every process counts from 1, so a number means the latest decision with this number.
  const latest = new Map<number, DecisionEntry>()
  for (const line of lines) {
    if (line.kind === 'decision') {
      const decision = { ...line }
      decisions.push(decision)
      latest.set(line.seq, decision)
    } else if (line.kind === 'fate') {
      const { fate, agent, of } = line
      Object.assign(latest.get(of) ?? {}, fate && { fate }, agent && { agent })
    }
  }
  return decisions
}

test('decisions read from a file include their outcomes, for every process that wrote the file', async (t) => {
  const { path } = await setUp(t)
  for (const fate of ['escaped', 'masked']) {
    const { arm, send, account, controller } = rig()
    arm([fault('a', 'test.spoil')], { journal: { file: path } })
    const call = toolCall('t')
    const outcome = await send(call)
    account(call, fate === 'escaped' ? outcome : answer())
    await controller.close()
  }
  const decisions = decisionsIn((await linesOf(path)).lines)
  assert.deepEqual(
    decisions.map(({ status, fate }) => [status, fate]),
    [
      ['applied', 'escaped'],
      ['applied', 'masked'],
    ],
  )
})
