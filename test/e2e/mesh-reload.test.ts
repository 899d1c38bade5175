import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, test } from 'node:test'
import { validate } from '../../src/commands/run/validate.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, configText, Gateway, type GatewayParts, type Json } from './support/gateway.ts'
import { until } from '../support/until.ts'
import { RawClient } from './support/raw-client.ts'

let server: FlakyServer
let gateway: Gateway
let client: RawClient

const steady = { consecutive: 2, open: '1m' }

interface Change {
  readonly breaker?: Json
  readonly attemptTimeout?: Json
  readonly more?: Json
}

const parts = ({ breaker = steady, attemptTimeout = {}, more = {} }: Change = {}): GatewayParts => ({
  servers: { flaky: { url: server.url }, ...more },
  policies: { defaults: { retry: false, breaker, attemptTimeout } },
})

before(async () => {
  server = await FlakyServer.start()
  gateway = await Gateway.start(parts())
  await gateway.waitFor('up', 'flaky')
  client = await RawClient.open(gateway.mcp('flaky'))
})
after(cleanUp)

async function reload(change: Change): Promise<void> {
  const { body: before } = await gateway.admin('/admin/config')
  await writeFile(gateway.file, configText(parts(change)))
  assert.equal((await gateway.post('/admin/reload')).status, 200)
  assert.notEqual((await gateway.admin('/admin/config')).body.hash, before.hash)
}

async function breaker(): Promise<Json | undefined> {
  const { body } = await gateway.admin<Json[]>('/admin/breakers')
  return body.find(({ tool }) => tool === 'read')
}

const reason = async () => ((await client.call('read')).error as { data: Json } | undefined)?.data.reason

async function open(): Promise<void> {
  await server.behave({ read: { failing: 1 } })
  for (let n = 0; n < 2; n++) assert.equal(await reason(), 'upstream_status')
  assert.equal(await reason(), 'breaker_open')
  await server.behave({ read: {} })
}

test('a reload of other settings leaves a breaker open, with its time of opening', async () => {
  await open()
  const opened = await breaker()
  assert.deepEqual([opened?.state, opened?.dimension], ['open', 'consecutive'])
  const count = await server.count('read')
  for (const change of [{ attemptTimeout: { timeout: 10_000 } }, { more: { other: { url: server.url } } }]) {
    await reload(change)
    assert.equal(await reason(), 'breaker_open')
    const { state, since, generation } = (await breaker()) ?? {}
    assert.deepEqual([state, generation], ['open', opened?.generation])
    assert.ok(Math.abs(Number(since) - Number(opened?.since)) < 50)
  }
  assert.equal(await server.count('read'), count)
})

test("a reload that changes a breaker's settings resets it", async () => {
  await reload({ breaker: { ...steady, consecutive: 3 } })
  assert.equal(await reason(), undefined)
  const now = await breaker()
  assert.deepEqual([now?.state, now?.generation], ['closed', 0])
  await reload({})
  await open()
})

test('a breaker opened by an operator stays open across a reload too', async () => {
  await gateway.post('/admin/breakers/flaky/read', { action: 'reset' })
  assert.equal(await reason(), undefined)
  await gateway.post('/admin/breakers/flaky/read', { action: 'open' })
  await reload({ attemptTimeout: { timeout: 20_000 } })
  assert.equal(await reason(), 'breaker_open')
  assert.equal((await breaker())?.manual, true)
})

test('the control plane hides breakers of removed servers', async () => {
  const more = { other: { url: server.url } }
  await reload({ more })
  await gateway.waitFor('up', 'other')
  const servers = async () => {
    const { body } = await gateway.admin<Record<string, Json[]>>('/admin/budgets')
    return body['retry-budget']?.map((budget) => budget.server)
  }
  await (await RawClient.open(gateway.mcp('other'))).say('read')
  const { body } = await gateway.admin<Json[]>('/admin/breakers')
  assert.ok(body.some((one) => one.server === 'other'))
  await reload({})
  const left = await gateway.admin<Json[]>('/admin/breakers')
  assert.deepEqual([...new Set(left.body.map((one) => one.server))], ['flaky'])
  assert.ok(!(await servers())?.includes('other'))
})

test('an override for an unknown tool is a warning in the log, once the tools are known', async () => {
  const policies = { overrides: [{ match: { tool: 'raed' }, attemptTimeout: { timeout: 1_000 } }] }
  await writeFile(gateway.file, configText({ ...parts(), policies }))
  assert.equal((await gateway.post('/admin/reload')).status, 200)
  await until('the warning', () => gateway.log.some(({ msg }) => msg === '"raed" matches no tool'))
  const warning = gateway.log.find(({ msg }) => msg === '"raed" matches no tool')
  assert.deepEqual([warning?.path, warning?.servers], ['policies.overrides[0].match.tool', ['flaky']])
})

test('validate compares a file with running servers only if the gateway runs them as the file says', async () => {
  const text = JSON.stringify({
    gateway: { control: new URL(gateway.control).host },
    mcpServers: { flaky: { url: server.url }, moved: { url: `${server.url}?moved` } },
    policies: {
      overrides: [{ match: { tool: 'raed', server: 'flaky' }, attemptTimeout: { timeout: 1_000 } }],
    },
  })
  const file = join(await mkdtemp(join(tmpdir(), 'breakwater-')), 'gw.json')
  await writeFile(file, text)
  const said: string[] = []
  const hear = (line: string) => void said.push(line)
  await gateway.waitFor('up', 'flaky')
  assert.equal(await validate([file], { stdout: hear, stderr: hear }, {}), 0)
  const [warning = '', , note = ''] = said
  assert.match(warning, /overrides\[0\]\.match\.tool.*"raed" matches no tool of flaky/)
  assert.match(note, /^ {2}tools were checked against .*, except tools of moved:/)
  await rm(dirname(file), { recursive: true })
})
