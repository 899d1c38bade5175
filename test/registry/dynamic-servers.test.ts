import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { z } from 'zod'
import { server as entry } from '../../src/config/schema/server-schema.ts'
import { DynamicServers } from '../../src/registry/dynamic-servers.ts'

interface Options {
  readonly stateDir?: string | undefined
  readonly configured?: readonly string[]
  readonly apply?: () => void
}

/** The servers of the API, beside the config file's servers in `configured`. */
function dynamicServers({ stateDir, configured = [], apply = () => undefined }: Options = {}) {
  return new DynamicServers({
    stateDir,
    separator: '__',
    allowCommands: true,
    inForce: () => Object.fromEntries(configured.map((name) => [name, entry.parse(memory)])),
    apply,
  })
}

async function folder(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'breakwater-state-'))
  t.after(() => rm(path, { recursive: true }))
  return join(path, 'state')
}

const memory = { command: 'memory' }

test('a server that is added takes effect, with what is not said filled in', async () => {
  let applied = 0
  const servers = dynamicServers({ apply: () => applied++ })
  const { status, kept } = await servers.add('memory', memory)
  assert.deepEqual([status, kept, applied], [201, false, 1])
  assert.equal(servers.has('memory'), true)
  assert.equal(servers.entries.memory?.type, 'stdio')
})

test('a server that is added again is replaced, and one that is removed is gone', async () => {
  const servers = dynamicServers()
  await servers.add('memory', memory)
  assert.equal((await servers.add('memory', { url: 'http://127.0.0.1:1/mcp' })).status, 200)
  assert.equal(servers.entries.memory?.type, 'http')
  assert.equal((await servers.remove('memory')).status, 200)
  assert.deepEqual(servers.entries, {})
  assert.equal((await servers.remove('memory')).status, 404)
})

test('an invalid entry is refused before anything changes', async () => {
  const servers = dynamicServers({ apply: () => assert.fail('applied') })
  for (const input of [undefined, null, 'x', {}, { url: 'no-url' }])
    await assert.rejects(servers.add('a', input), z.ZodError, JSON.stringify(input))
  assert.equal(servers.has('a'), false)
})

test("a name that could not be told apart from a tool's is refused", async () => {
  const servers = dynamicServers()
  for (const name of ['a__b', 'a_']) {
    assert.equal((await servers.add(name, memory)).status, 400, name)
  }
})

test('the servers of the config file are out of reach', async () => {
  const servers = dynamicServers({ configured: ['search'] })
  assert.equal((await servers.add('search', memory)).status, 409)
  assert.equal((await servers.remove('search')).status, 409)
})

test('a server that cannot be put into force is refused, and leaves no trace', async (t) => {
  const stateDir = await folder(t)
  let broken = false
  const apply = () => {
    if (broken) throw new Error('ENOENT: no such file, open ca.pem')
  }
  const servers = dynamicServers({ stateDir, apply })
  await servers.add('a', memory)
  broken = true
  const { status, error } = await servers.add('b', { command: 'b' })
  assert.equal(status, 422)
  assert.match(String(error), /ca\.pem/)
  await servers.add('a', { command: 'other' })
  assert.deepEqual(Object.keys(servers.entries), ['a'])
  assert.equal((servers.entries.a as { command?: string }).command, 'memory')
})

test("servers outlive the process as they were given, in a file that is the owner's alone", async (t) => {
  const stateDir = await folder(t)
  const servers = dynamicServers({ stateDir })
  await servers.load()
  assert.equal((await servers.add('memory', memory)).kept, true)
  await servers.add('search', { url: 'http://127.0.0.1:1/mcp', headers: { 'X-Key': 'k' } })
  const file = join(stateDir, 'servers.json')
  assert.deepEqual(JSON.parse(await readFile(file, 'utf8')), {
    mcpServers: { memory, search: { url: 'http://127.0.0.1:1/mcp', headers: { 'X-Key': 'k' } } },
  })
  assert.equal((await stat(file)).mode & 0o777, 0o600)
  const next = dynamicServers({ stateDir })
  await next.load()
  assert.deepEqual(next.entries, servers.entries)
  await next.remove('memory')
  const last = dynamicServers({ stateDir })
  await last.load()
  assert.deepEqual(Object.keys(last.entries), ['search'])
})

test('changes at the same time are all kept', async (t) => {
  const stateDir = await folder(t)
  const servers = dynamicServers({ stateDir })
  const names = Array.from({ length: 20 }, (_, n) => `server-${n}`)
  const changes = await Promise.all(names.map((name) => servers.add(name, memory)))
  assert.ok(changes.every(({ status }) => status === 201))
  const next = dynamicServers({ stateDir })
  await next.load()
  assert.deepEqual(Object.keys(next.entries), names)
  assert.deepEqual(await readdir(stateDir), ['servers.json'])
})

test('an unusable file is an error, and a missing file means no servers', async (t) => {
  const stateDir = await folder(t)
  const servers = dynamicServers({ stateDir })
  await servers.load()
  assert.deepEqual(servers.entries, {})
  await servers.add('a', memory)
  const file = join(stateDir, 'servers.json')
  for (const text of [
    '',
    'null',
    '{}',
    '{"mcpServers":{"a":{}}}',
    '{"mcpServers":{"a/b":{"command":"x"}}}',
    '{"mcpServers":{"a":{"headers":{"X-Key":sk-secret',
  ]) {
    await writeFile(file, text)
    await assert.rejects(dynamicServers({ stateDir }).load(), ({ message }: Error) => {
      assert.ok(message.startsWith(`${file} cannot be used`), message)
      assert.doesNotMatch(message, /secret|\n/)
      return true
    })
  }
  await rm(file)
  await mkdir(file)
  await assert.rejects(dynamicServers({ stateDir }).load(), {
    message: `${file} cannot be read: it is a folder`,
  })
})

test('a change that cannot be written is in force, says why, and is written with the next one', async (t) => {
  const stateDir = await folder(t)
  await writeFile(stateDir, '')
  const servers = dynamicServers({ stateDir })
  const added = await servers.add('a', memory)
  assert.deepEqual([added.status, added.kept], [201, false])
  assert.match(String(added.note), /^in force, but not written to .*servers\.json: /)
  assert.equal(servers.has('a'), true)
  await rm(stateDir)
  assert.equal((await servers.add('b', memory)).kept, true)
  const later = dynamicServers({ stateDir })
  await later.load()
  assert.deepEqual(Object.keys(later.entries), ['a', 'b'])
})
