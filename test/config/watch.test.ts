import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { appendFile, mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { digestOf, readText } from '../../src/config/files/read-text.ts'
import { loadConfig } from '../../src/config/load.ts'
import { watchFiles } from '../../src/config/watch/watch.ts'
import { type Clock, systemClock } from '../../src/mesh/clock.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'
import { folder } from './files.ts'

/** Returns the current text of files, in the format of a config reader. */
const readFiles = async (...files: readonly string[]) =>
  new Map(await Promise.all(files.map(async (file) => [file, digestOf(await readText(file))] as const)))

/** Watches real files and hands out changes one by one. */
async function watched(t: TestContext, paths: readonly string[], clock: Clock = systemClock) {
  let files = await readFiles(...paths)
  let looks = 0
  let changes = 0
  let taken = 0
  const watch = watchFiles(
    () => {
      looks++
      return files
    },
    async () => {
      files = await readFiles(...paths)
      changes++
    },
    { clock },
  )
  t.after(() => watch.close())
  await watch.ready
  return {
    watch,
    changes: () => changes,
    looks: () => looks,
    async changed(): Promise<void> {
      await until('the change is noticed', () => changes > taken)
      taken = changes
    },
  }
}

test('a change between the reading and the first look is noticed, once', async (t) => {
  const path = await folder(t, { 'a.yaml': 'one', 'b.yaml': 'one' })
  const files = await readFiles(join(path, 'a.yaml'), join(path, 'b.yaml'), join(path, 'c.yaml'))
  await writeFile(join(path, 'b.yaml'), 'two')
  let changes = 0
  let looks = 0
  const clock = new ManualClock()
  const getFiles = () => {
    looks++
    return files
  }
  const watch = watchFiles(getFiles, () => Promise.resolve(changes++), { clock })
  t.after(() => watch.close())
  await watch.ready
  assert.equal(changes, 1)
  // Each look begins after the end of the look before, so the third look follows a complete look.
  await until('the watcher has looked three times', async () => {
    await clock.advance(5_000)
    return looks >= 3
  })
  assert.equal(changes, 1)
})

test('the files read for a config count as unchanged, even unreadable files', async (t) => {
  const path = await folder(t, {
    'main.yaml': 'gateway: { file: gw.yaml }\npolicies: { file: none.yaml }\nmcpServers: { file: a/b.yaml }',
    'gw.yaml': 'name: \0',
    a: 'a file',
  })
  const { files } = await loadConfig(join(path, 'main.yaml'), {})
  assert.equal(files.size, 4)
  let changes = 0
  const watch = watchFiles(
    () => files,
    () => Promise.resolve(changes++),
    { clock: new ManualClock() },
  )
  t.after(() => watch.close())
  await watch.ready
  assert.equal(changes, 0)
})

test('a content that comes back after another one was read is noticed', async (t) => {
  const path = await folder(t, { 'a.yaml': 'one' })
  const file = join(path, 'a.yaml')
  let files = await readFiles(file)
  const reloads: (() => void)[] = []
  const watch = watchFiles(
    () => files,
    () => new Promise<void>((resolve) => reloads.push(resolve)),
    { clock: systemClock },
  )
  t.after(() => watch.close())
  await watch.ready
  await writeFile(file, 'two')
  await until('the change is noticed', () => reloads.length === 1)
  // This reload waited for another reload, and reads the newest content.
  await writeFile(file, 'three')
  files = await readFiles(file)
  await writeFile(file, 'two')
  reloads[0]?.()
  await until('the next change is noticed', () => reloads.length >= 2)
})

test('a folder that takes the place of another one is watched', async (t) => {
  const path = await folder(t)
  const clock = new ManualClock()
  const version = async (name: string, text: string) => {
    await mkdir(join(path, name))
    await writeFile(join(path, name, 'a.yaml'), text)
  }
  await version('conf', 'one')
  const { changed, changes } = await watched(t, [join(path, 'conf/a.yaml')], clock)
  await version('new', 'two')
  await rename(join(path, 'conf'), join(path, 'old'))
  await rename(join(path, 'new'), join(path, 'conf'))
  await clock.advance(5_000)
  await changed()
  // From here on without polls: the clock never reaches the next poll.
  await clock.advance(1_000)
  await writeFile(join(path, 'conf/a.yaml'), 'three')
  await until('the change is noticed', async () => {
    await clock.advance(1)
    return changes() >= 2
  })
})

test('a pipe counts as unchanged, with any content', async (t) => {
  const path = await folder(t)
  const pipe = join(path, 'a.yaml')
  execFileSync('mkfifo', [pipe])
  let changes = 0
  const watch = watchFiles(
    () => new Map([[pipe, digestOf({ text: 'one' })]]),
    () => Promise.resolve(changes++),
    { clock: new ManualClock() },
  )
  t.after(() => watch.close())
  await watch.ready
  assert.equal(changes, 0)
})

test('an edit in place is noticed', async (t) => {
  const path = await folder(t, { 'a.yaml': 'one' })
  const { changed } = await watched(t, [join(path, 'a.yaml')])
  await writeFile(join(path, 'a.yaml'), 'two')
  await changed()
  await appendFile(join(path, 'a.yaml'), 'three')
  await changed()
})

test('a file that is replaced by renaming is noticed, again and again', async (t) => {
  const path = await folder(t, { 'a.yaml': 'one' })
  const { changed } = await watched(t, [join(path, 'a.yaml')])
  for (const text of ['two', 'three']) {
    await writeFile(join(path, 'a.yaml.tmp'), text)
    await rename(join(path, 'a.yaml.tmp'), join(path, 'a.yaml'))
    await changed()
  }
})

test('a file that is deleted and created again is noticed', async (t) => {
  const path = await folder(t, { 'a.yaml': 'one' })
  const { changed } = await watched(t, [join(path, 'a.yaml')])
  await rm(join(path, 'a.yaml'))
  await changed()
  await writeFile(join(path, 'a.yaml'), 'one')
  await changed()
})

test("the swap of a mounted ConfigMap's data is noticed, though only a link was renamed", async (t) => {
  const path = await folder(t)
  const version = async (name: string, text: string) => {
    await mkdir(join(path, name))
    await writeFile(join(path, name, 'gateway.yaml'), text)
    await symlink(name, join(path, '..data_tmp'))
    await rename(join(path, '..data_tmp'), join(path, '..data'))
  }
  await version('..2026_01', 'one')
  await symlink('..data/gateway.yaml', join(path, 'gateway.yaml'))
  const { changed } = await watched(t, [join(path, 'gateway.yaml')])
  await version('..2026_02', 'two')
  await rm(join(path, '..2026_01'), { recursive: true })
  await changed()
  await version('..2026_03', 'three')
  await changed()
})

test('an edit of what a link leads to is noticed', async (t) => {
  const path = await folder(t)
  await mkdir(join(path, 'etc'))
  await mkdir(join(path, 'repository'))
  await writeFile(join(path, 'repository/a.yaml'), 'one')
  await symlink('../repository/a.yaml', join(path, 'etc/a.yaml'))
  const { changed } = await watched(t, [join(path, 'etc/a.yaml')])
  await writeFile(join(path, 'repository/a.yaml'), 'two')
  await changed()
})

test('every one of several files is watched, also one that is not there yet', async (t) => {
  const path = await folder(t, { 'a.yaml': 'one' })
  const { changed } = await watched(t, [join(path, 'a.yaml'), join(path, 'b.yaml')])
  await writeFile(join(path, 'b.yaml'), 'new')
  await changed()
})

test('a change that no file system reports is found by looking', async (t) => {
  const path = await folder(t)
  const clock = new ManualClock()
  const { changed } = await watched(t, [join(path, 'missing-folder/a.yaml')], clock)
  await mkdir(join(path, 'missing-folder'))
  await writeFile(join(path, 'missing-folder/a.yaml'), 'one')
  await clock.advance(5_000)
  await changed()
})

test('a file that is written anew with the same content is no change', async (t) => {
  const path = await folder(t, { 'a.yaml': 'one' })
  const clock = new ManualClock()
  const { changed, changes, looks } = await watched(t, [join(path, 'a.yaml')], clock)
  await writeFile(join(path, 'b.yaml'), 'one')
  await rename(join(path, 'b.yaml'), join(path, 'a.yaml'))
  // Each look begins after the end of the look before, so the third look follows a complete look.
  await until('the watcher has looked three times', async () => {
    await clock.advance(5_000)
    return looks() >= 3
  })
  assert.equal(changes(), 0)
  await writeFile(join(path, 'b.yaml'), 'two')
  await rename(join(path, 'b.yaml'), join(path, 'a.yaml'))
  await clock.advance(5_000)
  await changed()
  assert.equal(changes(), 1)
})

test('a closed watcher is silent and leaves no timer', async (t) => {
  const path = await folder(t, { 'a.yaml': 'one' })
  const clock = new ManualClock()
  const { watch, changes } = await watched(t, [join(path, 'a.yaml')], clock)
  assert.equal(clock.pending, 1)
  watch.close()
  assert.equal(clock.pending, 0)
  await writeFile(join(path, 'a.yaml'), 'two')
  await clock.advance(10_000)
  assert.equal(changes(), 0)
})

test('a watcher does not keep the process alive', async (t) => {
  const path = await folder(t, { 'a.yaml': 'one' })
  const files = await readFiles(join(path, 'a.yaml'))
  const before = process.getActiveResourcesInfo().length
  const watch = watchFiles(
    () => files,
    () => Promise.resolve(),
    { clock: systemClock },
  )
  await watch.ready
  assert.ok(process.getActiveResourcesInfo().length <= before)
  watch.close()
})
