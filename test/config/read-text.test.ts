import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { utimesSync } from 'node:fs'
import { mkdir, symlink, truncate, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { promisify } from 'node:util'
import { readText } from '../../src/config/files/read-text.ts'
import { bound } from '../support/bound.ts'
import { folder } from './files.ts'

/** A named pipe. */
async function pipe(t: TestContext): Promise<string> {
  const path = join(await folder(t), 'pipe')
  await promisify(execFile)('mkfifo', [path])
  return path
}

/** Starts another process that writes to a pipe. */
function write(path: string, script: string) {
  return once(spawn('sh', ['-c', `{ ${script}; } > "$0"`, path], { env: bound() }), 'exit')
}

test('a pipe is read to its end, in any number of late pieces', async (t) => {
  const path = await pipe(t)
  const reading = readText(path)
  await write(path, 'printf "gate"; printf "way: "; printf "{}"')
  assert.deepEqual(await reading, { text: 'gateway: {}' })
  const patient = readText(path, 60_000)
  await write(path, 'printf "gateway: {}"')
  assert.deepEqual(await patient, { text: 'gateway: {}' })
})

test('a pipe that nobody writes to is given up, and takes no thread from those that read files', async (t) => {
  const path = await pipe(t)
  // More reads than Node has file threads.
  const given = await Promise.all(Array.from({ length: 8 }, () => readText(path, 50)))
  const problem = 'cannot be read: it is a pipe, and not all of it was written within 50 ms'
  assert.deepEqual(given, Array(8).fill({ problem }))
})

test('a pipe that is never closed is given up as well', async (t) => {
  const path = await pipe(t)
  const writer = spawn('sh', ['-c', '{ printf "gateway: {}"; exec cat; } > "$0"', path], { env: bound() })
  t.after(() => writer.kill())
  const read = await readText(path, 500)
  assert.match('problem' in read ? read.problem : '', /not all of it was written within 500 ms/)
})

test('a pipe that is written and read without an end is as large as a file may be', async (t) => {
  const path = await pipe(t)
  const reading = readText(path)
  await write(path, 'exec cat /dev/zero')
  assert.deepEqual(await reading, { problem: 'the file is larger than 1 MiB, the limit of a config' })
})

test('an empty pipe is an error', async (t) => {
  const path = await pipe(t)
  const reading = readText(path)
  await write(path, ':')
  assert.deepEqual(await reading, { problem: 'cannot be read: it is a pipe without data' })
})

test('errors distinguish other kinds of files from links to nothing', async (t) => {
  const path = await folder(t)
  await mkdir(join(path, 'folder'))
  await writeFile(join(path, 'file'), '')
  await symlink('loop', join(path, 'loop'))
  await symlink('gone', join(path, 'dangling'))
  const server = createServer().listen(join(path, 'socket'))
  await once(server, 'listening')
  t.after(() => server.close())
  const said = async (name: string) => {
    const read = await readText(join(path, name), 1_000)
    return 'problem' in read ? read.problem : read
  }
  assert.equal(await said('folder'), 'cannot be read: it is a folder')
  assert.equal(await said('file/x'), 'cannot be read: a parent in its path is not a folder')
  assert.equal(await said('loop'), 'cannot be read: its links lead in a circle')
  assert.equal(await said('dangling'), 'cannot be read: no such file')
  assert.equal(await said('socket'), 'cannot be read: it is a socket, or a missing device')
  assert.deepEqual(await readText('/dev/zero', 1_000), { problem: 'cannot be read: it is a device' })
})

test('a file that is too large is not read to its end', async (t) => {
  const path = await folder(t, { large: '' })
  await truncate(join(path, 'large'), 100_000_000)
  assert.deepEqual(await readText(join(path, 'large')), {
    problem: 'the file is larger than 1 MiB, the limit of a config',
  })
})

test('text in UTF-16, and a file whose blocks never reached the disk, are no text', async (t) => {
  const path = await folder(t, { zeros: '\0'.repeat(100) })
  await writeFile(join(path, 'utf-16'), 'gateway: {}', 'utf16le')
  for (const name of ['zeros', 'utf-16'])
    assert.deepEqual(await readText(join(path, name)), {
      problem: 'cannot be read: it holds a NUL byte; save it as UTF-8 text',
    })
})

test('a file that changes during every read is not accepted', async (t) => {
  const path = join(await folder(t, { file: 'gateway: {}' }), 'file')
  let seconds = 0
  let turn: NodeJS.Immediate
  const touch = () => {
    utimesSync(path, seconds, seconds++)
    turn = setImmediate(touch)
  }
  touch()
  const read = await readText(path).finally(() => clearImmediate(turn))
  assert.deepEqual(read, {
    problem: 'cannot be read: another process kept writing to it during every attempt',
  })
})
