import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { KillRecord } from '../../../src/chaos/kill/kill-record.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { fault, rig } from '../rig.ts'

async function setUp(t: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), 'kill-record-'))
  t.after(() => rm(folder, { recursive: true }))
  const path = join(folder, 'state', 'chaos-kill.json')
  const clock = new ManualClock()
  return { folder, path, clock, record: new KillRecord(path, clock) }
}

const kill = { by: 'me', why: 'enough', at: 7 }

test('the kill record reserves its space before a kill, never more, and is readable by its owner only', async (t) => {
  const { path, clock, record } = await setUp(t)
  record.reserve()
  const { size, mode } = await stat(path)
  assert.deepEqual([size, mode & 0o777], [2_048, 0o600])
  assert.equal(record.read(), undefined)
  for (const letter of ['x', 'ü', '\u0001', '\u{1F4A5}']) {
    record.write({ by: letter.repeat(128), why: letter.repeat(512), at: 1 })
    assert.equal(record.problem, undefined)
    assert.equal((await stat(path)).size, size)
    assert.equal(new KillRecord(path, clock).read()?.by, letter.repeat(64 / letter.length))
  }
  record.write(undefined)
  assert.equal(record.read(), undefined)
  record.close()
  await assert.rejects(stat(path), { code: 'ENOENT' })
})

test('a kill survives the end of the process, and no reservation removes the kill', async (t) => {
  const { path, clock, record } = await setUp(t)
  record.reserve()
  record.write(kill)
  record.close()
  const next = new KillRecord(path, clock)
  next.reserve()
  assert.deepEqual(next.read(), kill)
})

test('an unreadable kill record counts as a kill', async (t) => {
  const { path, record } = await setUp(t)
  record.write(kill)
  const text = await readFile(path, 'utf8')
  for (const broken of ['', '{}', 'null', '{"killed":nu', text.slice(0, 12), '{"killed":1}']) {
    await writeFile(path, broken)
    assert.match(record.read()?.why ?? '', /chaos-kill\.json cannot be read .* counts as a kill/, broken)
  }
  await rm(path)
  await mkdir(path)
  assert.match(record.read()?.why ?? '', /EISDIR/)
})

test('an unwritable kill is in force all the same, is reported, and is written as soon as possible', async (t) => {
  const { folder, path } = await setUp(t)
  await writeFile(join(folder, 'state'), 'no folder')
  const { arm, controller, clock, typesOf } = rig({ killRecord: path })
  assert.equal(controller.status().killed, true, 'an unreadable path may hold a kill')
  await rm(join(folder, 'state'))
  controller.unkill('me', 'the disk is well')
  arm([fault('a', 'test.hold')])
  await rm(join(folder, 'state'), { recursive: true })
  await writeFile(join(folder, 'state'), 'no folder')
  controller.kill('me', 'enough')
  assert.equal(controller.status().state, 'killed')
  assert.match(controller.status().killRecordProblem ?? '', /chaos-kill\.json cannot be written/)
  assert.deepEqual(typesOf().slice(-2), ['killed', 'kill_record_error'])
  await rm(join(folder, 'state'))
  await clock.advance(1_000)
  assert.equal(controller.status().killRecordProblem, undefined)
  assert.equal(new KillRecord(path, clock).read()?.why, 'enough')
})
