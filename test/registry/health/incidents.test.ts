import assert from 'node:assert/strict'
import { chmod, lstat, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { Incidents } from '../../../src/registry/health/incidents.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/until.ts'

async function folderFor(t: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-incidents-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  return folder
}

function kept(stateDir: string | undefined) {
  const clock = new ManualClock()
  const problems: string[] = []
  const incidents = new Incidents({ clock, stateDir, onProblem: (problem) => void problems.push(problem) })
  const begin = (server: string, message = 'cannot connect (ECONNREFUSED)') =>
    incidents.begin({
      server,
      reason: 'connection_refused',
      message,
      startedAt: clock.wall(),
      detectedAt: clock.wall(),
    })
  return { clock, incidents, problems, begin }
}

test('the next process finds the incidents of the last process, open incidents included', async (t) => {
  const folder = await folderFor(t)
  const first = kept(folder)
  await first.incidents.load()
  const over = first.begin('a')
  first.incidents.change(over.id, { endedAt: first.clock.wall(), end: 'recovered' })
  const open = first.begin('b')
  await first.incidents.close()
  const file = join(folder, 'incidents.json')
  assert.equal((await stat(file)).mode & 0o777, 0o600)

  const second = kept(folder)
  await second.incidents.load()
  assert.deepEqual(
    second.incidents.list().map(({ id }) => id),
    [open.id, over.id],
  )
  assert.equal(second.incidents.openOf('b')?.id, open.id)
  assert.equal(second.incidents.openOf('a'), undefined)
  assert.deepEqual(second.problems, [])
})

test('changes are written together, soon, and without being asked for', async (t) => {
  const folder = await folderFor(t)
  const { clock, incidents, begin } = kept(folder)
  for (let i = 0; i < 5; i++) begin(`s${i}`)
  await clock.advance(100)
  await incidents.close()
  const { incidents: written } = JSON.parse(await readFile(join(folder, 'incidents.json'), 'utf8')) as {
    incidents: unknown[]
  }
  assert.equal(written.length, 5)
})

test('a thousand are kept, and two megabytes of them: those that ended first go, open ones stay', async (t) => {
  const folder = await folderFor(t)
  const { clock, incidents, begin } = kept(folder)
  const open = begin('open')
  for (let i = 0; i < 1_500; i++) {
    const { id } = begin('s', 'x'.repeat(900))
    incidents.change(id, { message: 'x'.repeat(900), endedAt: clock.wall(), end: 'recovered' })
  }
  assert.equal(incidents.list().length, 1_000)
  const notices = Object.fromEntries(
    Array.from({ length: 16 }, (_, index) => [
      `webhook-${index}-${'y'.repeat(40)}`,
      { opened: 'delivered' as const, escalated: 'delivered' as const, closed: 'delivered' as const },
    ]),
  )
  for (const { id } of incidents.list()) incidents.change(id, { notices })
  await incidents.close()
  assert.ok((await stat(join(folder, 'incidents.json'))).size <= 2 * 1024 ** 2)
  assert.ok(incidents.list().length < 1_000)
  assert.equal(incidents.openOf('open')?.id, open.id)
})

test('a damaged file is put aside, and reported', async (t) => {
  const folder = await folderFor(t)
  const file = join(folder, 'incidents.json')
  await writeFile(file, '{"incidents":[{"id":1}]}')
  const { incidents, problems } = kept(folder)
  await incidents.load()
  assert.deepEqual(incidents.list(), [])
  assert.match(problems.join(), /is damaged: the file is kept as .*\.damaged$/)
  assert.equal(await readFile(`${file}.damaged`, 'utf8'), '{"incidents":[{"id":1}]}')
})

test('a time that is no date is damage', async (t) => {
  const folder = await folderFor(t)
  const file = join(folder, 'incidents.json')
  const first = kept(folder)
  first.begin('a')
  await first.incidents.close()
  const text = await readFile(file, 'utf8')
  await writeFile(file, text.replace(/"startedAt":\d+/, '"startedAt":1e300'))
  const { incidents, problems } = kept(folder)
  await incidents.load()
  assert.deepEqual(incidents.list(), [])
  assert.match(problems.join(), /is damaged/)
})

test('a time before the year 2000 is damage', async (t) => {
  const folder = await folderFor(t)
  const file = join(folder, 'incidents.json')
  const first = kept(folder)
  first.begin('a')
  await first.incidents.close()
  const text = await readFile(file, 'utf8')
  await writeFile(file, text.replace(/"startedAt":\d+/, '"startedAt":1000'))
  const { incidents, problems } = kept(folder)
  await incidents.load()
  assert.deepEqual(incidents.list(), [])
  assert.match(problems.join(), /is damaged/)
})

test('a time that is yet to come is taken for now, and said so where no clock is so far off', async (t) => {
  const folder = await folderFor(t)
  const file = join(folder, 'incidents.json')
  const first = kept(folder)
  const { id } = first.begin('a')
  const now = first.clock.wall()
  first.incidents.change(id, {
    startedAt: now - 5_000,
    lastSeenAt: now + 30_000,
    gap: { from: now - 1_000, to: now + 40_000 },
  })
  await first.incidents.close()
  const near = kept(folder)
  await near.incidents.load()
  const [read] = near.incidents.list()
  assert.deepEqual([read?.startedAt, read?.lastSeenAt], [now - 5_000, now])
  assert.deepEqual(read?.gap, { from: now - 1_000, to: now })
  assert.deepEqual(near.problems, [])

  const text = await readFile(file, 'utf8')
  await writeFile(file, text.replace(/"(startedAt|detectedAt)":\d+/g, '"$1":8.64e15'))
  const far = kept(folder)
  await far.incidents.load()
  assert.deepEqual(
    far.incidents.list().map(({ startedAt, detectedAt }) => [startedAt, detectedAt]),
    [[now, now]],
  )
  assert.match(far.problems.join(), /has future times in 1 incidents: the current time is used instead$/)
})

test('a damaged file does not overwrite damaged files put aside before, up to five', async (t) => {
  const folder = await folderFor(t)
  const file = join(folder, 'incidents.json')
  for (let n = 1; n <= 7; n++) {
    await writeFile(file, `damaged ${n}`)
    const { incidents, problems } = kept(folder)
    await incidents.load()
    assert.match(problems.join(), n === 1 ? /\.damaged$/ : new RegExp(`\\.damaged\\.${Math.min(n, 5)}$`))
  }
  const aside = (await readdir(folder)).sort()
  const names = ['', '.2', '.3', '.4', '.5'].map((end) => `incidents.json.damaged${end}`)
  assert.deepEqual(aside, names)
  const texts = await Promise.all(aside.map((name) => readFile(join(folder, name), 'utf8')))
  assert.deepEqual(texts, ['damaged 1', 'damaged 2', 'damaged 3', 'damaged 4', 'damaged 7'])
})

test('an unreadable file is left alone, with a message', async (t) => {
  const folder = await folderFor(t)
  const file = join(folder, 'incidents.json')
  // A link to itself: unreadable, even for root.
  await symlink(file, file)
  const { incidents, problems, begin } = kept(folder)
  await incidents.load()
  begin('a')
  await incidents.close()
  assert.ok((await lstat(file)).isSymbolicLink())
  assert.equal(incidents.list().length, 1)
  assert.equal(problems.length, 1)
  assert.match(problems.join(), /cannot be read \(ELOOP\): the file stays unchanged/)
})

test('a refusing disk is logged once, and tried again', async (t) => {
  const folder = await folderFor(t)
  const blocked = join(folder, 'file')
  await writeFile(blocked, '')
  const { clock, incidents, problems, begin } = kept(join(blocked, 'below'))
  begin('a')
  await clock.advance(100)
  begin('b')
  await until('the problem is reported', () => problems.length > 0)
  assert.equal(clock.pending, 1, 'the next try is due')
  await rm(blocked)
  await chmod(folder, 0o700)
  await clock.advance(5_000)
  await incidents.close()
  assert.match(problems.join(), /^[^,]*cannot be written \(\w+\)$/)
  const text = await readFile(join(blocked, 'below', 'incidents.json'), 'utf8')
  assert.equal((JSON.parse(text) as { incidents: unknown[] }).incidents.length, 2)
})

test('without a folder, incidents end with the process', async () => {
  const { incidents, begin, clock } = kept(undefined)
  begin('a')
  assert.equal(clock.pending, 0)
  await incidents.close()
  assert.equal(incidents.list().length, 1)
})
