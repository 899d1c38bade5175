import assert from 'node:assert/strict'
import { extname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { errorOf, ModernClient } from './support/modern-client.ts'
import { RawClient, type RawReply } from './support/raw-client.ts'

after(cleanUp)

const capabilities = { sampling: {}, elicitation: {} }
const question = (id: string) => ({ id, method: 'elicitation/create', params: { message: `for ${id}` } })
const log = { method: 'notifications/message', params: { level: 'critical', data: 'a secret' } }

/** A process shared by two agents: `leaver` gives up or leaves, `bystander` stays. */
async function stage(settings: Json = {}) {
  const extension = extname(import.meta.url)
  const path = fileURLToPath(new URL(`../fixtures/whispering-server${extension}`, import.meta.url))
  const servers = { box: { command: process.execPath, args: [path] } }
  const gateway = await Gateway.start({ servers, gateway: settings })
  await gateway.waitFor('up', 'box')
  const open = () => RawClient.open(gateway.mcp('box'), { capabilities })
  const [leaver, bystander] = [await open(), await open()]
  return { gateway, leaver, bystander }
}

function resultOf({ messages }: RawReply): Json {
  assert.ok(messages[0] !== undefined && 'result' in messages[0], JSON.stringify(messages))
  return messages[0].result as Json
}

/** Starts a call of the leaver, without waiting for its end. */
async function hold({ leaver, bystander }: Awaited<ReturnType<typeof stage>>, id: string) {
  const params = { name: 'hold', arguments: { key: id } }
  void leaver.post({ jsonrpc: '2.0', id, method: 'tools/call', params }).catch(() => undefined)
  await until('the call has reached the process', async () => (await bystander.say('held')) === '1')
}

/** Returns everything the bystander receives during a call in which the process sends these messages. */
async function overheard(bystander: RawClient, messages: readonly Json[]): Promise<unknown[]> {
  const params = { name: 'whisper', arguments: { messages } }
  const reply = await bystander.post({ jsonrpc: '2.0', id: 'whisper', method: 'tools/call', params })
  return reply.messages.filter(({ method }) => method !== undefined).map(({ method }) => method)
}

const answers = async (client: RawClient) => JSON.parse(await client.say('heard')) as Json[]

for (const [title, goAway] of [
  [
    'cancels its call',
    (leaver: RawClient) =>
      leaver.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'mine' } }),
  ],
  ['ends its session', (leaver: RawClient) => leaver.leave()],
] as const)
  test(`after an agent ${title}, messages of the process for this agent reach nobody else`, async () => {
    const scene = await stage()
    const { leaver, bystander } = scene
    await hold(scene, 'mine')
    await goAway(leaver)
    const secret = [question('q1'), log, { method: 'notifications/vendor/secret', params: {} }]
    assert.deepEqual(await overheard(bystander, secret), [])
    await until('the question is declined', async () => (await answers(bystander)).length === 1)
    const [declined] = await answers(bystander)
    assert.match(
      (declined?.error as Json).message as string,
      /cannot tell which client.*sharing: per_session/,
    )
  })

test('once the process has answered a call that was given up, it can ask again', async () => {
  const scene = await stage()
  const { leaver, bystander } = scene
  await hold(scene, 'mine')
  await leaver.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'mine' } })
  await bystander.say('let_go', { key: 'mine' })
  assert.deepEqual(await overheard(bystander, [question('q2'), log]), [
    'elicitation/create',
    'notifications/message',
  ])
})

test('a call that was given up and is never answered keeps questions from others for moments only', async () => {
  const scene = await stage()
  const { gateway, leaver, bystander } = scene
  await hold(scene, 'mine')
  await leaver.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'mine' } })
  await leaver.leave()
  let tries = 0
  await until(
    'the bystander is asked',
    async () => (await overheard(bystander, [question(`q${++tries}`)])).length > 0,
  )
  assert.equal(await gateway.metric('breakwater_server_requests_withheld_total', 'server="box"'), tries - 1)
  const line = gateway.log.find(({ msg }) => String(msg).startsWith("no client gets the server's requests"))
  assert.match(String(line?.msg), /while a call that .+ gave up may go on/)
})

test("the log and a metric show that an open task holds back the process's questions", async () => {
  const { gateway, leaver: owner, bystander } = await stage()
  await owner.request('tools/call', { name: 'begin_task', arguments: {}, task: {} })
  assert.deepEqual(await overheard(bystander, [question('q1')]), [])
  await until('the withheld question is counted', async () => {
    const count = await gateway.metric('breakwater_server_requests_withheld_total', 'server="box"')
    return count === 1
  })
  const line = gateway.log.find(({ msg }) => String(msg).startsWith("no client gets the server's requests"))
  assert.equal(line?.server, 'box')
  assert.match(String(line.msg), /while a task of raw at 127\.0\.0\.1 is open: until the task ends/)
})

test('an agent without a session keeps its task, however many other kinds of clients come', async () => {
  const { gateway } = await stage({ limits: { perClient: 0.003 } })
  const owner = new ModernClient(gateway.mcp('box'), { tasks: {} })
  const begun = resultOf(await owner.call('begin_task'))
  const { taskId } = begun.task as { taskId: string }
  for (let n = 0; n < 8; n++)
    resultOf(await new ModernClient(gateway.mcp('box'), { [`kind-${n}`]: {} }).call('held'))
  const get = owner.request('tasks/get', { taskId })
  assert.equal(resultOf(await owner.post(get, { 'mcp-name': taskId })).status, 'working')
})

test('a tenant without a session keeps its task with a new token, and no other tenant finds the task', async () => {
  const { gateway } = await stage()
  const client = new ModernClient(gateway.mcp('box'), { tasks: {} })
  const as = (tenant: string, authorization: string) => ({ 'x-breakwater-tenant': tenant, authorization })
  const begin = client.request('tools/call', { name: 'begin_task', arguments: {} })
  const begun = resultOf(await client.post(begin, as('acme', 'Bearer 1')))
  const { taskId } = begun.task as { taskId: string }
  const get = (headers: object) =>
    client.post(client.request('tasks/get', { taskId }), { 'mcp-name': taskId, ...headers })
  assert.equal(resultOf(await get(as('acme', 'Bearer 2'))).status, 'working')
  assert.match(errorOf(await get(as('other', 'Bearer 1'))).message, /Task not found/)
})

test("an agent's tasks are found by no other, and listed to no other", async () => {
  const { leaver: owner, bystander } = await stage()
  const begun = await owner.request('tools/call', { name: 'begin_task', arguments: {}, task: {} })
  const { taskId } = (begun.result as { task: { taskId: string } }).task
  for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
    const refused = await bystander.request(method, { taskId })
    assert.equal((refused.error as { code: number } | undefined)?.code, -32602, JSON.stringify(refused))
    assert.ok('result' in (await owner.request(method, { taskId })))
  }
  const listed = async (client: RawClient) => ((await client.request('tasks/list')).result as Json).tasks
  assert.deepEqual(await listed(bystander), [])
  assert.equal(((await listed(owner)) as unknown[]).length, 1)
})
