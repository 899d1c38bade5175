import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { RecordingFile } from '../../../src/telemetry/recording/file.ts'
import { header } from '../../sim/recorded.ts'
import { ManualClock } from '../../support/manual-clock.ts'

async function setUp(t: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), 'recording-'))
  t.after(() => rm(folder, { recursive: true }))
  const path = join(folder, 'calls.jsonl')
  const errors: string[] = []
  let dropped = 0
  const file = new RecordingFile({
    path,
    maxSize: 1_024,
    keep: 2,
    clock: new ManualClock(),
    header: () => header(),
    onError: (why) => void errors.push(why),
    onDropped: (count) => void (dropped += count),
  })
  /** Writes one line and waits until the disk has accepted or refused the line. */
  const write = (line: string) => {
    file.append(line)
    return file.flush()
  }
  const lines = async (from = path) =>
    (await readFile(from, 'utf8'))
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
  return { folder, path, file, write, lines, errors, dropped: () => dropped }
}

test('a folder, a pipe and a link are refused and left as they are', async (t) => {
  const made: Readonly<Record<string, (path: string) => unknown>> = {
    folder: (path) => mkdir(path),
    pipe: (path) => execFileSync('mkfifo', [path]),
    link: (path) => symlink('/dev/null', path),
  }
  for (const [name, make] of Object.entries(made)) {
    const { path, write, errors } = await setUp(t)
    await make(path)
    await write(line(1))
    assert.deepEqual(errors, [`${path} is no regular file`], name)
    await assert.rejects(stat(`${path}.1`), /ENOENT/)
  }
})

test('an empty file that others may read becomes an older one, and the recording is its owner’s alone', async (t) => {
  const { path, write } = await setUp(t)
  await writeFile(path, '', { mode: 0o666 })
  await write(line(1))
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  assert.equal((await stat(`${path}.1`)).size, 0)
})

const line = (n: number) => JSON.stringify({ n, text: 'x'.repeat(400) })

test('a full file becomes an older one, each with a header, and only so many are kept', async (t) => {
  const { path, write, lines } = await setUp(t)
  for (let n = 0; n < 10; n++) await write(line(n))
  const read = await Promise.all([path, `${path}.1`, `${path}.2`].map(lines))
  assert.deepEqual(
    read.map(([{ part } = {}, ...rest]) => [part, ...rest.map(({ n }) => n)]),
    [
      [4, 9],
      [3, 6, 7, 8],
      [2, 3, 4, 5],
    ],
  )
  await assert.rejects(stat(`${path}.3`))
  assert.equal((await stat(path)).mode & 0o777, 0o600)
})

test('calls that the disk refused are missing, which the file says', async (t) => {
  const { folder, file, write, lines, errors, dropped } = await setUp(t)
  await write(line(0))
  await rm(folder, { recursive: true })
  // More than the queue holds while the disk refuses.
  await write(JSON.stringify({ text: 'x'.repeat(1024 ** 2) }))
  assert.deepEqual([errors.length, dropped()], [1, 1])
  await mkdir(folder)
  await write(line(2))
  await file.close()
  const [{ part } = {}, ...rest] = await lines()
  assert.deepEqual([part, ...rest.map(({ n, lost }) => n ?? { lost })], [2, { lost: 1 }, 2])
})
