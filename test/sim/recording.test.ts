import assert from 'node:assert/strict'
import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { notesOnReplay, readRecording, RecordingError } from '../../src/sim/recording.ts'
import { attempt, call, header } from './recorded.ts'

/** A file of these lines; a last line that is a text has no line end. */
async function setUp(t: TestContext, ...files: readonly (readonly (object | string)[])[]) {
  const folder = await mkdtemp(join(tmpdir(), 'recording-'))
  t.after(() => rm(folder, { recursive: true }))
  const file = join(folder, 'calls.jsonl')
  for (const [number, lines] of files.entries()) {
    const texts = lines.map((line) => (typeof line === 'string' ? line : `${JSON.stringify(line)}\n`))
    await writeFile(number === 0 ? file : `${file}.${number}`, texts.join(''))
  }
  return file
}

const refused = (file: string, message: string) =>
  assert.rejects(readRecording(file), (error) => error instanceof RecordingError && error.message === message)

test('calls come in the order in which they came, not in which they ended', async (t) => {
  const file = await setUp(t, [header(), call({ at: 20 }), call({ at: 5 })])
  const { calls, notes } = await readRecording(file)
  assert.deepEqual(
    calls.map(({ at }) => at),
    [5, 20],
  )
  assert.deepEqual(notes, [])
})

test('older files of the same recording come first, and other files nearby are ignored', async (t) => {
  const file = await setUp(
    t,
    [header({ part: 3 }), call({ at: 9_000 })],
    [header({ part: 2 }), call({ at: 5_000 })],
    [header({ startedAt: '2025-01-01T00:00:00.000Z' }), call({ at: 7_000 })],
  )
  const { calls, notes } = await readRecording(file)
  assert.deepEqual(
    calls.map(({ at }) => at),
    [5_000, 9_000],
  )
  assert.deepEqual(notes, [
    'files 1 to 1 of the recording are missing, or cut off by a missing file: the first 5 s are left out',
  ])
})

test('a file of two recordings is refused, with the line where the second one begins', async (t) => {
  const file = await setUp(t, [header(), call(), header({ startedAt: '2020-01-01T00:00:00.000Z' }), call()])
  const message =
    'line 3 begins another recording with another start time; put each recording into its own file'
  await refused(file, `${file}: ${message}`)
})

test('a recording with a cut last line is read up to there, with a note', async (t) => {
  const lines = [header(), call(), call()]
  const file = await setUp(t, [...lines, JSON.stringify(call()).slice(0, 70)])
  const { calls, notes } = await readRecording(file)
  assert.equal(calls.length, 2)
  assert.deepEqual(notes, [`${file}: line 4 is cut off: 2 calls were read`])
})

test('an older file that cannot be read is left out with all before it, and both are said', async (t) => {
  const lines = [header({ part: 3 }), call({ at: 9_000 })]
  const file = await setUp(t, lines, [], [header({ part: 1 }), call({ at: 1_000 })])
  const { calls, notes } = await readRecording(file)
  assert.deepEqual(
    calls.map(({ at }) => at),
    [9_000],
  )
  assert.deepEqual(notes, [
    `${file}.1 is empty: nothing has been recorded`,
    'files 1 to 2 of the recording are missing, or cut off by a missing file: the first 9 s are left out',
  ])
})

test('a line without an end is damage like any, and never in memory as a whole', async (t) => {
  const file = await setUp(t, [header(), call()])
  // Longer than any text may be, like a file damaged by a power loss.
  await truncate(file, 520 * 1024 ** 2)
  const { calls, notes } = await readRecording(file)
  assert.equal(calls.length, 1)
  assert.deepEqual(notes, [`${file}: line 3 is cut off: 1 call was read`])
})

test('lines without a call are counted, and so are calls lost to a slow disk', async (t) => {
  const file = await setUp(t, [header({ sample: 0.5 }), 'x\n', call(), { lost: 3 }, 'y\n', call()])
  const { calls, notes } = await readRecording(file)
  assert.equal(calls.length, 2)
  assert.deepEqual(notes, [
    '50 % of the tasks were recorded',
    `${file}: 3 calls are missing, because the disk was too slow`,
    `${file}: 2 lines without a call, the first is line 2: 2 calls were read`,
  ])
})

test('calls that were answered without an attempt are counted for a replay', async (t) => {
  const file = await setUp(t, [
    header(),
    call(),
    call({ attempts: [] }),
    call({ attempts: [], result: 'rejected' }),
  ])
  const { calls, notes } = await readRecording(file)
  assert.deepEqual(notes, [])
  assert.deepEqual(notesOnReplay(calls), [
    '1 call was answered without an attempt, for example by an idempotency key: the replay tries it',
  ])
})

test('a report of one line and one call uses the singular', async (t) => {
  const file = await setUp(t, [header(), { lost: 1 }, 'x\n', call()])
  assert.deepEqual((await readRecording(file)).notes, [
    `${file}: 1 call is missing, because the disk was too slow`,
    `${file}: line 3 holds no call: 1 call was read`,
  ])
})

test('lines with numbers that no clock shows hold no call', async (t) => {
  const text = JSON.stringify(call())
  const wrong = ['-1', '1e999', '1e300', 'null', '"10"'].map(
    (value) => `${text.replace('"tookMs":10', `"tookMs":${value}`)}\n`,
  )
  const attempts = Array.from({ length: 33 }, (_, n) => attempt({ number: n + 1 }))
  const file = await setUp(t, [header(), ...wrong, call({ attempts }), call()])
  const { calls, notes } = await readRecording(file)
  assert.equal(calls.length, 1)
  assert.deepEqual(notes, [`${file}: 6 lines without a call, the first is line 2: 1 call was read`])
})

test('a file that is no recording is refused with an explanation', async (t) => {
  const empty = await setUp(t, [])
  await refused(empty, `${empty} is empty: nothing has been recorded`)
  const older = await setUp(t, [header({ breakwaterRecording: 1 }), call()])
  await refused(older, `${older} is a recording of format 1; this program reads format 2`)
  const other = await setUp(t, [{ level: 30, msg: 'a log' }])
  await refused(other, `${other} is no recording of a gateway: its first line is no recording header`)
  const headed = await setUp(t, [header()])
  await refused(headed, `${headed} holds no call`)
  await refused(`${headed}.none`, `${headed}.none: there is no such file`)
  const folder = dirname(headed)
  await refused(folder, `${folder} cannot be read: it is a folder`)
  // Endless.
  await refused('/dev/zero', '/dev/zero cannot be read: it is a device')
})

test('a byte order mark in front of the first line, as some editors put it, is none of it', async (t) => {
  const file = await setUp(t, [`\ufeff${JSON.stringify(header())}\n`, call({ at: 5 })])
  assert.equal((await readRecording(file)).calls.length, 1)
  const twice = await setUp(t, [`\ufeff\ufeff${JSON.stringify(header())}\n`, call()])
  await refused(twice, `${twice} is no recording of a gateway: its first line is no recording header`)
})

test('outcomes of tasks are lines of their own, and each call has its place', async (t) => {
  const outcome = { task: 'task', outcome: 'degraded', at: 30 }
  const file = await setUp(
    t,
    [header({ part: 2 }), call({ at: 20 }), outcome],
    [header(), outcome, call({ at: 5 })],
  )
  const { calls, places, outcomes, hasGaps, notes } = await readRecording(file)
  assert.deepEqual(
    calls.map((one) => places.get(one)),
    [
      { file: `${file}.1`, line: 3 },
      { file, line: 2 },
    ],
  )
  assert.deepEqual([outcomes, hasGaps, notes], [[outcome, outcome], false, []])
})

test('a recording with lost calls, damaged lines or missing files has gaps', async (t) => {
  for (const lines of [
    [header(), call(), { lost: 1 }],
    [header(), call(), 'x\n'],
    [header({ part: 2 }), call()],
  ])
    assert.equal((await readRecording(await setUp(t, lines))).hasGaps, true)
})
