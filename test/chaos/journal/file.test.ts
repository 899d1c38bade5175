import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { verifyFile, verifyText } from '../../../src/chaos/journal/chain.ts'
import type { ControlEntry } from '../../../src/chaos/journal/entry.ts'
import { decisionsIn } from '../../../src/chaos/journal/explain.ts'
import { JournalFile, type JournalFileParts } from '../../../src/chaos/journal/file.ts'
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
  const open = (more: Partial<JournalFileParts> = {}) =>
    new JournalFile({
      path,
      maxSize: 1024 ** 2,
      keep: 2,
      clock,
      onError: (why) => void errors.push(why),
      ...more,
    })
  return { folder, path, clock, errors, open }
}

const entry = (seq: number): ControlEntry => ({ kind: 'control', seq, at: 0, type: 'armed', by: 'me' })

const seqs = (lines: readonly object[]) => lines.flatMap((line) => ('seq' in line ? [line.seq] : []))

test('entries are appended a moment later, as a chain that holds', async (t) => {
  const { path, clock, open } = await setUp(t)
  const file = open()
  for (const seq of [1, 2, 3]) file.append(entry(seq))
  await assert.rejects(stat(path))
  await clock.advance(100)
  await file.close()
  const verified = await verifyFile(path)
  assert.deepEqual(verified.ok && seqs(verified.lines), [1, 2, 3])
  assert.equal((await stat(path)).mode & 0o777, 0o600)
})

test('no line can be changed, taken out, put in or moved unnoticed', async (t) => {
  const { path, open } = await setUp(t)
  const file = open()
  for (const seq of [1, 2, 3, 4]) file.append(entry(seq))
  await file.close()
  const lines = (await readFile(path, 'utf8')).split('\n').slice(0, -1)
  const check = (changed: readonly (string | undefined)[]) => verifyText(changed.join('\n'))
  assert.equal(check(lines).ok, true)
  const [header, one, two, three, four] = lines
  const forged = two!.replace('"by":"me"', '"by":"it"')
  assert.deepEqual(check([header, one, forged, three, four]), {
    ok: false,
    line: 3,
    why: 'was changed, or a line before it is missing',
  })
  assert.equal(check([header, one, three, four]).ok, false)
  assert.equal(check([header, one, two, two, three, four]).ok, false)
  assert.equal(check([header, two, one, three, four]).ok, false)
  assert.deepEqual(check([one, two]), { ok: false, line: 1, why: 'the beginning of the file is missing' })
  assert.deepEqual(check([header, 'nonsense']), { ok: false, line: 2, why: 'is no line of a journal' })
  assert.equal(check([header, one, two, three, forged]).ok, false)
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
  const verified = await verifyFile(path)
  assert.equal(verified.ok && seqs(verified.lines).length, 1_700)
  assert.ok(most <= 501, `${most} lines at a time`)
})

test('past its size a new file is begun, the chain goes on in it, and the oldest are dropped', async (t) => {
  const { path, open } = await setUp(t)
  const file = open({ maxSize: 1_000 })
  for (let seq = 1; seq <= 40; seq++) {
    file.append(entry(seq))
    await file.flush()
  }
  const [newest, older, oldest] = await Promise.all([path, `${path}.1`, `${path}.2`].map(verifyFile))
  await assert.rejects(stat(`${path}.3`))
  assert.ok(newest?.ok && older?.ok && oldest?.ok)
  assert.equal(newest.previous, older.last)
  assert.equal(older.previous, oldest.last)
  const kept = [oldest, older, newest].flatMap(({ lines }) => seqs(lines))
  assert.deepEqual(
    kept,
    Array.from({ length: kept.length }, (_, index) => 41 - kept.length + index),
  )
  assert.deepEqual(verifyText(await readFile(path, 'utf8'), 'f'.repeat(64)), {
    ok: false,
    line: 1,
    why: 'does not go on from the file before',
  })
})

test('another process goes on with the chain', async (t) => {
  const { path, open } = await setUp(t)
  for (const seq of [1, 2, 3]) {
    const file = open()
    file.append(entry(seq))
    await file.close()
  }
  const verified = await verifyFile(path)
  assert.deepEqual(verified.ok && seqs(verified.lines), [1, 2, 3])
})

test('a damaged file is put aside, not gone on with', async (t) => {
  const { path, open, errors } = await setUp(t)
  await writeFile(path, '{"hash":"')
  const file = open()
  file.append(entry(1))
  await file.close()
  assert.equal(await readFile(`${path}.damaged`, 'utf8'), '{"hash":"')
  assert.equal((await verifyFile(path)).ok, true)
  assert.match(errors[0] ?? '', /line 1 .* is no line of a journal; it is kept as/)
})

test('a disk that refuses loses entries, not calls, and the journal says how many', async (t) => {
  const { folder, errors, open } = await setUp(t)
  const path = join(folder, 'later', 'chaos.jsonl')
  const file = open({ path })
  for (const seq of [1, 2]) file.append(entry(seq))
  await file.flush()
  file.append(entry(3))
  await file.flush()
  assert.equal(errors.length, 1)
  const { mkdir } = await import('node:fs/promises')
  await mkdir(join(folder, 'later'))
  file.append(entry(4))
  await file.close()
  const verified = await verifyFile(path)
  assert.ok(verified.ok)
  assert.deepEqual(seqs(verified.lines), [4])
  assert.deepEqual(
    verified.lines.find(({ kind }) => kind === 'gap'),
    { kind: 'gap', at: Date.UTC(2026, 0, 1), dropped: 3 },
  )
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
  await until('both are written', async () => (await verifyFile(path)).ok)
  const kinds = async (file: string) => {
    const verified = await verifyFile(file)
    return verified.ok && verified.lines.map((line) => ('type' in line ? line.type : line.kind))
  }
  assert.deepEqual(await kinds(path), ['header', 'armed', 'test.spoil'])
  assert.deepEqual(await kinds(second), ['header', 'plan', 'test.spoil', 'disarmed'])
  assert.equal(clock.pending, 0)
})

test('decisions read from a file say what became of them, in every process that wrote it', async (t) => {
  const { path } = await setUp(t)
  for (const fate of ['escaped', 'masked']) {
    const { arm, send, account, controller } = rig()
    arm([fault('a', 'test.spoil')], { journal: { file: path } })
    const call = toolCall('t')
    const outcome = await send(call)
    account(call, fate === 'escaped' ? outcome : answer())
    await controller.close()
  }
  const verified = await verifyFile(path)
  const decisions = decisionsIn(verified.ok ? verified.lines : [])
  assert.deepEqual(
    decisions.map(({ status, fate }) => [status, fate]),
    [
      ['applied', 'escaped'],
      ['applied', 'masked'],
    ],
  )
})
