import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import type { Loaded } from '../../src/config/load.ts'
import { config as schema, type Config } from '../../src/config/schema/schema.ts'
import { Reloader, withServers } from '../../src/gateway/reload.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { FlakyServer } from '../e2e/support/flaky.ts'
import { cleanUp, type Json } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers, RawServer, sendResult } from '../e2e/support/raw-server.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { heldServer } from './held-server.ts'
import { runGateway } from './running-gateway.ts'

after(async () => {
  closeServers()
  await cleanUp()
})

const url = 'http://127.0.0.1:1/mcp'
const configOf = (...names: string[]) =>
  schema.parse({ mcpServers: Object.fromEntries(names.map((name) => [name, { url }])) })
const filesOf = (...names: string[]) => new Map(names.map((name) => [name, `what was in ${name}`]))
const read = (...names: string[]): Loaded => ({
  ok: true,
  config: configOf(...names),
  warnings: [],
  files: filesOf(`${names.join()}.yaml`),
  hash: names.join(),
})
const unreadable: Loaded = {
  ok: false,
  errors: [{ severity: 'error', file: 'broken.yaml', line: 3, column: 5, path: 'a', message: 'not a key' }],
  files: filesOf('broken.yaml', 'other.yaml'),
}

/** A reloader with scripted file contents, one reading after another. */
function reloaderOf(...readings: (Loaded | Promise<Loaded>)[]) {
  const metrics = createMetrics()
  const { log, lines } = recordedLog()
  const applied: string[] = []
  /** The config that each reading was compared with. */
  const compared: string[] = []
  /** Configs compiled for a reload. */
  const prepared: Config[] = []
  let broken: string | undefined
  let isTimely = true
  let onPrepare = (): void => undefined
  const compiled = ({ mcpServers }: Config) => {
    const names = Object.keys(mcpServers).join()
    if (names === broken) throw new Error(`${names} does not compile`)
    return names
  }
  const reloader = new Reloader(configOf('first'), filesOf('first.yaml'), {
    load({ mcpServers }) {
      compared.push(Object.keys(mcpServers).join())
      return Promise.resolve(readings.shift() ?? unreadable)
    },
    apply: (config) => void applied.push(compiled(config)),
    prepare(config) {
      prepared.push(config)
      onPrepare()
      return Promise.resolve(config)
        .then(compiled)
        .then((names) => () => {
          if (isTimely) applied.push(names)
          return isTimely
        })
    },
    inForce: () => applied.at(-1) ?? 'first',
    unarmed: () => 'a plan is not armed',
    added: () => ({}),
    clock: new ManualClock(),
    log,
    metrics,
  })
  const exposed = async (name: string) =>
    (await metrics.registry.metrics()).split('\n').filter((line) => line.startsWith(name))
  const breakOn = (names: string) => void (broken = names)
  return {
    reloader,
    applied,
    compared,
    prepared,
    lines,
    exposed,
    breakOn,
    overtake: () => void (isTimely = false),
    onPrepare: (task: () => void) => void (onPrepare = task),
  }
}

test('a reload warns of a plan that is not armed, in its answer and in the log', async () => {
  const { reloader, lines } = reloaderOf(read('second'))
  const report = await reloader.reload('test')
  assert.deepEqual(report.ok && report.warnings, ['a plan is not armed'])
  assert.equal(lines.filter(({ msg }) => msg === 'a plan is not armed').length, 1)
})

test('a config that does not compile is forgotten: what is in force is put into force again, and watched', async () => {
  const { reloader, applied, lines, exposed, breakOn } = reloaderOf(read('second'), read('third'))
  assert.equal((await reloader.reload('test')).ok, true)
  breakOn('third')
  assert.deepEqual(await reloader.reload('test'), { ok: false, errors: ['third does not compile'] })
  assert.deepEqual(await exposed('breakwater_config_reload_success'), ['breakwater_config_reload_success 0'])
  assert.deepEqual(await exposed('breakwater_config_info'), ['breakwater_config_info{hash="second"} 1'])
  assert.match(String(lines.at(-1)?.msg), /^config not reloaded/)
  // As after adding a server over the API.
  reloader.refresh()
  assert.deepEqual(applied, ['second', 'second'])
  // The reload notices an edit of the broken file.
  assert.deepEqual([...reloader.files.keys()], ['third.yaml'])
})

test('an unreadable file changes only the watched files, and the report names its error', async () => {
  const { reloader, applied, exposed } = reloaderOf(unreadable, read('mended'))
  const report = await reloader.reload('test')
  assert.equal(report.ok, false)
  assert.match(report.errors.join(), /broken\.yaml:3:5 .*not a key/)
  assert.deepEqual(applied, [])
  assert.deepEqual([...reloader.files.keys()], ['broken.yaml', 'other.yaml'])
  assert.equal((await reloader.reload('test')).ok, true)
  assert.deepEqual(await exposed('breakwater_config_reload_success'), ['breakwater_config_reload_success 1'])
  assert.deepEqual(applied, ['mended'])
})

test('a config overtaken during compilation is compiled again for the current state', async () => {
  const { reloader, applied, prepared, exposed, overtake } = reloaderOf(read('second'))
  overtake()
  assert.equal((await reloader.reload('test')).ok, true)
  assert.deepEqual([prepared.length, applied], [1, ['second']])
  assert.deepEqual(await exposed('breakwater_config_info'), ['breakwater_config_info{hash="second"} 1'])
})

test('a reading is compared with the last reading that came into force', async () => {
  const { reloader, compared, breakOn } = reloaderOf(read('second'), read('third'), read('fourth'))
  await reloader.reload('test')
  breakOn('third')
  await reloader.reload('test')
  await reloader.reload('test')
  assert.deepEqual(compared, ['first', 'second', 'second'])
})

test('a reload waits for the one before, and those that come meanwhile are one', async () => {
  let finish!: (loaded: Loaded) => void
  const slow = new Promise<Loaded>((resolve) => (finish = resolve))
  const { reloader, applied, compared } = reloaderOf(slow, read('later'), read('last'))
  const first = reloader.reload('file')
  await setImmediate()
  const others = ['SIGHUP', 'admin', 'file'].map((trigger) => reloader.reload(trigger))
  await setImmediate()
  assert.deepEqual([compared, applied], [['first'], []])
  finish(read('earlier'))
  const reports = await Promise.all([first, ...others])
  assert.deepEqual(
    reports.map((report) => report.ok && report.hash),
    ['earlier', 'later', 'later', 'later'],
  )
  assert.deepEqual(applied, ['earlier', 'later'])
  await reloader.reload('file')
  assert.deepEqual(applied, ['earlier', 'later', 'last'])
})

test('a reading that breaks down is reported, and keeps no later one from taking place', async () => {
  const { reloader, applied, exposed } = reloaderOf(Promise.reject(new Error('no threads')), read('later'))
  assert.deepEqual(await reloader.reload('file'), { ok: false, errors: ['no threads'] })
  assert.deepEqual(await exposed('breakwater_config_reload_success'), ['breakwater_config_reload_success 0'])
  assert.deepEqual([[...reloader.files.keys()], applied], [['first.yaml'], []])
  assert.equal((await reloader.reload('file')).ok, true)
  assert.deepEqual(applied, ['later'])
})

test('once servers are ended nothing comes into force, neither what is being read nor what is being compiled', async () => {
  const stopping = { ok: false, errors: ['the gateway is being stopped'] }
  let finish!: (loaded: Loaded) => void
  const reading = reloaderOf(new Promise<Loaded>((resolve) => (finish = resolve)))
  const late = reading.reloader.reload('file')
  await setImmediate()
  reading.reloader.close()
  finish(read('late'))
  assert.deepEqual(await late, stopping)
  assert.deepEqual(reading.prepared, [])

  const compiling = reloaderOf(read('late'))
  compiling.onPrepare(() => compiling.reloader.close())
  assert.deepEqual(await compiling.reloader.reload('file'), stopping)
  // As after adding a server over the API.
  compiling.reloader.refresh()
  assert.deepEqual([compiling.prepared.length, compiling.applied], [1, []])
})

test('between two servers with one name, the server of the file wins over the added server', () => {
  const added = configOf('both', 'added').mcpServers
  const { mcpServers } = withServers(configOf('both'), { ...added, both: { ...added.both!, disabled: true } })
  assert.deepEqual(Object.keys(mcpServers), ['both', 'added'])
  assert.equal(mcpServers.both?.disabled, false)
})

test('a call ends on its first generation and server, and afterwards nothing of the generation is left', async (t) => {
  const [old, fresh] = [await heldServer('old'), await heldServer('fresh')]
  const { live, mcp, reload, isUp } = await runGateway(t, { servers: { moved: { url: old.url } } })
  await isUp('moved')
  const client = await RawClient.open(mcp('moved'))
  const underWay = [client.say('hold'), client.say('hold')]
  await old.holds(2)
  const before = live.current

  assert.equal((await reload({ servers: { moved: { url: fresh.url } } })).ok, true)
  await isUp('moved')
  assert.equal(await client.say('name'), 'fresh')
  assert.deepEqual(live.open, [live.current, before])
  old.answer()
  assert.deepEqual(await Promise.all(underWay), ['old', 'old'])
  assert.deepEqual(live.open, [live.current])
})

test('a call to a server that a reload removes ends well, and the next one is refused', async (t) => {
  const server = await heldServer('gone')
  const { live, mcp, reload, isUp } = await runGateway(t, { servers: { gone: { url: server.url } } })
  await isUp('gone')
  const client = await RawClient.open(mcp('gone'))
  const underWay = client.say('hold')
  await server.holds(1)
  await reload({ servers: {} })
  assert.equal(live.current.servers.size, 0)
  const { status } = await client.post({
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: { name: 'name' },
  })
  assert.equal(status, 404)
  server.answer()
  assert.equal(await underWay, 'gone')
})

test('a config that cannot be used leaves everything as it was: generation, sessions, and calls under way', async (t) => {
  const server = await heldServer('steady')
  const parts = { servers: { steady: { url: server.url } } }
  const { live, mcp, reload, isUp, lines } = await runGateway(t, parts)
  await isUp('steady')
  const client = await RawClient.open(mcp('steady'))
  const underWay = client.say('hold')
  await server.holds(1)
  const before = live.current
  const report = await reload({ ...parts, policies: { defaults: { retry: { maxRetries: -1 } } } })
  assert.equal(report.ok, false)
  assert.match(report.errors.join(), /policies\.defaults\.retry\.maxRetries/)
  assert.equal(live.current, before)
  assert.deepEqual(live.open, [before])
  assert.match(String(lines.at(-1)?.msg), /^config not reloaded/)
  assert.equal(await client.say('name'), 'steady')
  server.answer()
  assert.equal(await underWay, 'steady')
})

test('the owners of tasks are known after a reload with another connection', async (t) => {
  const server = await RawServer.start(({ message: { id, method } }, response) => {
    if (method !== 'tools/call' && method !== 'tasks/get') return false
    const result = method === 'tools/call' ? { task: { taskId: 'a', status: 'working' } } : { taskId: 'a' }
    return sendResult(response, id, result)
  })
  const parts = (token: string) => ({
    servers: { tasks: { url: server.url, headers: { authorization: `Bearer ${token}` } } },
  })
  const { mcp, reload, isUp } = await runGateway(t, parts('old'))
  await isUp('tasks')
  const [owner, other] = await Promise.all([RawClient.open(mcp('tasks')), RawClient.open(mcp('tasks'))])
  await owner.call('begin')
  await reload(parts('new'))
  const ask = async (client: RawClient) => (await client.request('tasks/get', { taskId: 'a' })).error
  assert.equal(await ask(owner), undefined)
  assert.match(JSON.stringify(await ask(other)), /Task not found/)
})

test('a reload keeps state learned from calls while the settings of that state stay', async (t) => {
  const server = await FlakyServer.start()
  await server.behave({ read: { failing: 1 } })
  const parts = (breaker: Json, more: Json = {}) => ({
    servers: { flaky: { url: server.url } },
    policies: { defaults: { retry: false, breaker, ...more } },
  })
  const { mcp, reload, isUp, admin } = await runGateway(t, parts({ consecutive: 2, open: '1m' }))
  await isUp('flaky')
  const client = await RawClient.open(mcp('flaky'))
  for (let n = 0; n < 2; n++) assert.ok((await client.call('read')).error)
  const states = async () => {
    const listed = await admin<Json[]>('/admin/breakers')
    return listed.flatMap(({ tool, state }) => (tool === '*' ? [] : state))
  }
  assert.deepEqual(await states(), ['open'])

  // The policy itself does not change.
  await reload(parts({ consecutive: 2, open: '1m' }, { deadline: { total: '20s' } }))
  assert.deepEqual(await states(), ['open'])
  await server.behave({ read: {} })
  assert.ok((await client.call('read')).error, 'the breaker is open')

  await reload(parts({ consecutive: 3, open: '1m' }))
  assert.match(await client.say('read'), /^read by/)
  assert.deepEqual(await states(), ['closed'])
})
