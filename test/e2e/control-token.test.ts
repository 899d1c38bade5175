import assert from 'node:assert/strict'
import { chmod, lstat, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { after, test } from 'node:test'
import { findToken, keepToken, newControlToken } from '../../src/gateway/control-token.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, newFolder, type Json } from './support/gateway.ts'
import { stdioToolbox } from './support/toolbox.ts'

after(cleanUp)

function ask(
  gateway: Gateway,
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body = '',
): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const asking = request(gateway.control + path, { method, headers, agent: false }, (response) => {
      void text(response).then((said) => resolve({ status: response.statusCode ?? 0, body: said }))
    })
    asking.once('error', reject)
    asking.end(body)
  })
}

const json = { 'content-type': 'application/json' }

test('a client of the control plane may read without the token, and change nothing', async () => {
  const gateway = await Gateway.start({ servers: { local: stdioToolbox() } })
  await gateway.waitFor('up', 'local')
  for (const path of ['/metrics', '/admin/servers', '/admin/config', '/admin/chaos', '/chaos/status'])
    assert.equal((await ask(gateway, 'GET', path)).status, 200, path)

  const server = JSON.stringify({ name: 'evil', server: { command: 'sh', args: ['-c', 'exit'] } })
  const writes = [
    ['POST', '/admin/servers', server],
    ['DELETE', '/admin/servers/local', ''],
    ['POST', '/admin/servers/local/restart', '{}'],
    ['POST', '/admin/reload', '{}'],
    ['POST', '/admin/breakers/local/echo', '{"action": "open"}'],
    ['POST', '/admin/outcomes', '[]'],
    ['PUT', '/admin/chaos', '{"faults": []}'],
    ['POST', '/admin/chaos/arm', '{}'],
    ['POST', '/admin/chaos/renew', '{}'],
    ['POST', '/admin/chaos/unkill', '{}'],
    ['POST', '/chaos/inject', '{}'],
  ] as const
  for (const [method, path, body] of writes) {
    // Paths of mcp-chaos-monkey answer with its own status.
    const status = path.startsWith('/chaos/') ? 403 : 401
    for (const headers of [json, { ...json, authorization: `Bearer ${'x'.repeat(43)}` }]) {
      const refused = await ask(gateway, method, path, headers, body)
      assert.equal(refused.status, status, `${method} ${path}: ${refused.body}`)
    }
    const allowed = await ask(
      gateway,
      method,
      path,
      { ...json, authorization: `Bearer ${gateway.token}` },
      body,
    )
    assert.notEqual(allowed.status, status, `${method} ${path}`)
  }
})

test('stopping faults needs no token, but pages of other sites may not stop them', async () => {
  const gateway = await Gateway.start({ servers: {}, gateway: { environment: 'test' } })
  const stops = ['/admin/chaos/disarm', '/chaos/clear-all', '/admin/chaos/kill']
  for (const path of stops) {
    for (const page of [
      { origin: 'https://evil.example' },
      { origin: 'null' },
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
      { host: 'evil.example' },
    ] as Record<string, string>[]) {
      const headers = { 'content-type': 'text/plain', ...page }
      assert.equal((await ask(gateway, 'POST', path, headers, '{}')).status, 403, JSON.stringify(page))
    }
  }
  assert.notEqual((await gateway.admin('/admin/chaos')).body.state, 'killed')
  for (const path of stops) assert.equal((await ask(gateway, 'POST', path)).status, 200, path)
  assert.equal((await gateway.admin('/admin/chaos')).body.state, 'killed')
})

test('the control plane refuses requests an HTML form could send, with or without the token', async () => {
  const gateway = await Gateway.start({ servers: {} })
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x']) {
    const headers = { 'content-type': type, authorization: `Bearer ${gateway.token}` }
    const refused = await ask(gateway, 'POST', '/admin/servers', headers, '{"name": "a", "server": {}}')
    assert.equal(refused.status, 415, type)
    assert.match(refused.body, /the Content-Type must be application\/json/)
  }
})

test('the token is in a private file, never in the output, and is removed with the gateway', async () => {
  const gateway = await Gateway.start({ servers: {} }, { args: ['--log-level', 'trace'] })
  const { tokenFile } = gateway.log.find(({ msg }) => msg === 'listening') as { tokenFile: string }
  const { mode } = await lstat(tokenFile)
  assert.deepEqual([mode & 0o777, (await stat(dirname(tokenFile))).mode & 0o777], [0o600, 0o700])
  assert.match(gateway.token, /^bw_[\w-]{43}$/)
  assert.ok(tokenFile.includes(new URL(gateway.control).port))
  await gateway.program.line('the banner', (line) => (line.includes('Paste this') ? true : undefined))
  assert.ok(gateway.program.lines.some((line) => line.endsWith(`Control token  ${tokenFile}`)))
  assert.ok(gateway.program.lines.every((line) => !line.includes(gateway.token)))
  assert.ok(!(await ask(gateway, 'GET', '/admin/config')).body.includes(gateway.token))
  gateway.program.signal('SIGTERM')
  assert.equal((await gateway.program.ended).code, 0)
  assert.deepEqual(await readdir(dirname(tokenFile)), [])
})

test('a configured token is in no file, and reading needs it too', async () => {
  const gateway = await Gateway.start({ servers: {}, gateway: { controlToken: 'sixteen-letters-or-more' } })
  assert.equal((await ask(gateway, 'GET', '/admin/servers')).status, 401)
  assert.equal((await ask(gateway, 'POST', '/admin/chaos/kill')).status, 401)
  const headers = { authorization: 'Bearer sixteen-letters-or-more' }
  assert.equal((await ask(gateway, 'GET', '/admin/servers', headers)).status, 200)
  assert.deepEqual(await readdir(dirname(gateway.file)), ['gateway.yaml'])
})

test('a token is never looked up for another machine', async () => {
  const XDG_RUNTIME_DIR = await newFolder()
  const kept = await keepToken({
    token: newControlToken(),
    control: 'http://127.0.0.1:1',
    stateDir: undefined,
    env: { XDG_RUNTIME_DIR },
  })
  assert.equal(kept.files.length, 1)
  const find = (base: string) => findToken(base, { XDG_RUNTIME_DIR })
  assert.equal((await find('http://127.0.0.1:1')).ok, true)
  for (const base of ['http://example.com:1', 'http://10.0.0.1:1', 'http://localhost.evil.example:1']) {
    const found = await find(base)
    assert.deepEqual([found.ok, !found.ok && /loopback/.test(found.why)], [false, true], base)
  }
  // The host name is replaced by the token's address.
  const named = await find('http://localhost:1/')
  assert.equal(named.ok && named.base, 'http://127.0.0.1:1/')
  await kept.remove()
  assert.equal((await find('http://127.0.0.1:1')).ok, false)
})

test('the gateway does not trust a foreign or linked run folder, and never writes through links', async () => {
  const runtime = await newFolder()
  const elsewhere = await newFolder()
  const victim = join(elsewhere, 'victim')
  await writeFile(victim, 'precious')
  const options = { token: newControlToken(), control: 'http://127.0.0.1:18081', stateDir: undefined }
  const env = { XDG_RUNTIME_DIR: runtime }
  const folder = join(runtime, 'breakwater')

  await symlink(elsewhere, folder)
  const linked = await keepToken({ ...options, env })
  assert.match(linked.problems.join(), /breakwater is no folder/)
  assert.ok(linked.files.every((file) => !file.startsWith(runtime)))
  await linked.remove()
  assert.deepEqual(await readdir(elsewhere), ['victim'])

  const open = await newFolder()
  await mkdir(join(open, 'breakwater'))
  await chmod(join(open, 'breakwater'), 0o777)
  const opened = await keepToken({ ...options, env: { XDG_RUNTIME_DIR: open } })
  assert.match(opened.problems.join(), /is open to other users \(mode 777/)
  await opened.remove()

  const own = await newFolder()
  await mkdir(join(own, 'breakwater'), { mode: 0o700 })
  const name = join(own, 'breakwater', 'control-127.0.0.1-18081.token')
  await symlink(victim, name)
  assert.equal((await findToken(options.control, { XDG_RUNTIME_DIR: own })).ok, false)
  const kept = await keepToken({ ...options, env: { XDG_RUNTIME_DIR: own } })
  assert.deepEqual(kept.files, [name])
  assert.ok((await lstat(name)).isFile())
  assert.equal(await readFile(victim, 'utf8'), 'precious')
})

test('a state folder holds the token beside the other lasting files', async () => {
  const stateDir = join(await newFolder(), 'state')
  const gateway = await Gateway.start({ servers: {}, gateway: { stateDir } })
  const { tokenFile } = gateway.log.find(({ msg }) => msg === 'listening') as { tokenFile: string }
  assert.equal(dirname(tokenFile), stateDir)
  assert.equal((await stat(tokenFile)).mode & 0o777, 0o600)
  const found = await findToken(gateway.control, { XDG_RUNTIME_DIR: dirname(gateway.file) })
  assert.equal(found.ok && found.token, gateway.token)
  gateway.program.signal('SIGTERM')
  await gateway.program.ended
  assert.ok(!(await readdir(stateDir)).some((name) => name.endsWith('.token')))
})

test('programs can be added over the API only if the config says so, and those of an earlier run wait for it', async () => {
  const stateDir = join(await newFolder(), 'state')
  const add = (gateway: Gateway, name: string, server: unknown) =>
    gateway.post('/admin/servers', { name, server })
  const { url } = await FlakyServer.start()
  const free = await Gateway.start({ servers: {}, gateway: { stateDir, dynamicCommands: true } })
  assert.equal((await add(free, 'local', stdioToolbox())).status, 201)
  free.program.signal('SIGTERM')
  await free.program.ended

  const parts = { servers: {}, gateway: { stateDir } }
  const strict = await Gateway.start(parts)
  assert.equal(await strict.server('local'), undefined)
  const warning = strict.log.find(({ msg }) => /gateway\.dynamicCommands is false/.test(String(msg)))
  assert.deepEqual(warning?.servers, ['local'])
  const refused = await add(strict, 'other', stdioToolbox())
  assert.equal(refused.status, 403)
  assert.match(String(refused.body.error), /gateway\.dynamicCommands: true, and a restart/)
  assert.equal((await add(strict, 'remote', { url })).status, 201)

  // A reload does not lift the protection.
  await strict.reconfigure({ servers: {}, gateway: { stateDir, dynamicCommands: true } })
  const { body } = await strict.post<{ needsRestart: string[] }>('/admin/reload')
  assert.deepEqual(body.needsRestart, ['gateway.dynamicCommands'])
  assert.equal((await add(strict, 'other', stdioToolbox())).status, 403)
  assert.equal(await strict.server('local'), undefined)

  const kept = JSON.parse(await readFile(join(stateDir, 'servers.json'), 'utf8')) as { mcpServers: Json }
  assert.deepEqual(Object.keys(kept.mcpServers), ['local', 'remote'])
})
