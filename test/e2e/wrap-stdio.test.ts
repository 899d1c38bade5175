import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { writeFile } from 'node:fs/promises'
import { after, afterEach, test } from 'node:test'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { CreateMessageRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { until } from '../support/until.ts'
import { isAlive } from '../support/processes.ts'
import { cleanUp, newFolder } from './support/gateway.ts'
import { textOf } from './support/sdk-client.ts'
import { stdioScript } from './support/toolbox.ts'
import { main } from '../support/main.ts'

const resolve = createRequire(import.meta.url).resolve
const everything = join(
  dirname(resolve('@modelcontextprotocol/server-everything/package.json')),
  'dist/index.js',
)

const open: { client: Client; said: string[]; pid: number }[] = []

/** Connects the SDK's client to a program wrapped in the mesh. */
async function wrap(
  script: string,
  plan?: unknown,
  args: readonly string[] = [],
  command: readonly string[] = ['stdio'],
) {
  const given = plan === undefined ? [] : ['--plan', await planFile(plan)]
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [main, ...command, ...given, ...args, '--', process.execPath, script],
    env: { PATH: process.env.PATH ?? '', WRAP_TEST: 'inherited' },
    stderr: 'pipe',
  })
  const said: string[] = []
  transport.stderr?.on('data', (chunk) => said.push(String(chunk)))
  const client = new Client({ name: 'e2e', version: '1.0.0' }, { capabilities: { sampling: {} } })
  client.setRequestHandler(CreateMessageRequestSchema, () => ({
    model: 'test',
    role: 'assistant',
    content: { type: 'text', text: 'sampled' },
  }))
  await client.connect(transport)
  const wrapped = { client, said, pid: transport.pid as number }
  open.push(wrapped)
  return wrapped
}

async function planFile(plan: unknown): Promise<string> {
  const file = join(await newFolder(), 'plan.yaml')
  await writeFile(file, JSON.stringify(plan))
  return file
}

const call = (client: Client, name: string, args: Record<string, unknown> = {}) =>
  client.callTool({ name, arguments: args })

const always = { rate: 1, ttl: '5m', allowWrites: true }

afterEach(() => Promise.all(open.splice(0).map(({ client }) => client.close())))
after(cleanUp)

test("the wrap command works as mcp-chaos's proxy stdio, with an armed plan", async () => {
  const plan = { seed: 1, faults: [{ type: 'error_injection', rate: 1, tools: ['echo'] }] }
  const { client } = await wrap(everything, plan, ['--strict'], ['proxy', 'stdio'])
  await assert.rejects(call(client, 'echo', { message: 'hi' }))
  const { tools } = await client.listTools()
  assert.ok(tools.some(({ name }) => name === 'echo'))
})

test('a wrapped server works as before: its tools, its progress, and what it asks of the client', async () => {
  const { client } = await wrap(everything, undefined, ['--log-level', 'error'])
  assert.match(client.getServerVersion()?.name ?? '', /everything/)
  const { tools } = await client.listTools()
  assert.ok(tools.some(({ name }) => name === 'echo'))
  assert.equal(textOf(await call(client, 'echo', { message: 'hello' })), 'Echo: hello')

  // Taken from the transport: the SDK drops progress that arrives in one chunk with the result, as happens on a busy
  // machine.
  const progress: unknown[] = []
  const take = client.transport!.onmessage
  client.transport!.onmessage = (message) => {
    if ('method' in message && message.method === 'notifications/progress')
      progress.push(message.params?.progress)
    take?.(message)
  }
  await client.callTool(
    { name: 'trigger-long-running-operation', arguments: { duration: 0.3, steps: 3 } },
    undefined,
    { onprogress: () => undefined },
  )
  assert.deepEqual(progress, [1, 2, 3])
  assert.match(textOf(await call(client, 'trigger-sampling-request', { prompt: 'hi' })), /sampled/)
})

test("messages outside calls arrive, and the server has the client's environment", async () => {
  const { client } = await wrap(stdioScript)
  let changes = 0
  client.fallbackNotificationHandler = async ({ method }) => {
    if (method === 'notifications/tools/list_changed') changes++
  }
  assert.equal(textOf(await call(client, 'env', { name: 'WRAP_TEST' })), 'inherited')
  await call(client, 'add', { name: 'later' })
  await until('the client hears of the new tool', () => changes > 0)
})

test('calls run side by side, and a long text passes', async () => {
  const { client } = await wrap(stdioScript)
  const began = performance.now()
  await Promise.all(Array.from({ length: 10 }, () => call(client, 'sleep', { ms: 1_000 })))
  // In sequence the calls take 10 s.
  assert.ok(performance.now() - began < 8_000)
  assert.equal(textOf(await call(client, 'huge', { bytes: 1_000_000 })).length, 1_000_000)
})

test('a fault of the plan reaches the client unchanged, and only its targets', async () => {
  const fault = { ...always, name: 'gone', type: 'rpc.error', code: -32050, message: 'injected' }
  const { client, said } = await wrap(stdioScript, {
    seed: 1,
    faults: [{ ...fault, match: { tool: 'echo' } }],
  })
  await assert.rejects(call(client, 'echo', { text: 'hi' }), { code: -32050, message: /injected/ })
  assert.match(textOf(await call(client, 'pid')), /^\d+$/)
  await client.close()
  await until('the program reports the fate of the fault', () =>
    /gone .*injected 1, masked 0, delayed 0, surfaced 1/.test(said.join('')),
  )
})

test('injected latency really delays a call', async () => {
  const distribution = { kind: 'fixed', delay: '400ms' }
  const { client } = await wrap(stdioScript, [
    { ...always, name: 'slow', type: 'conn.latency', distribution },
  ])
  const began = performance.now()
  assert.equal(textOf(await call(client, 'echo', { text: 'hi' })), 'hi')
  assert.ok(performance.now() - began >= 395)
})

test('faults towards the agent become errors over stdio, never silence', async () => {
  const aimed = (tool: string) => ({ ...always, name: tool, side: 'client', match: { tool } })
  const { client } = await wrap(stdioScript, [
    { ...aimed('echo'), type: 'conn.refused' },
    { ...aimed('pid'), type: 'http.status', status: 503, body: 'injected' },
    { ...aimed('env'), type: 'rpc.malformed' },
  ])
  await assert.rejects(call(client, 'echo', { text: 'hi' }), /BW_|connection|connect/i)
  await assert.rejects(call(client, 'pid'), /HTTP 503.*injected/)
  await assert.rejects(call(client, 'env', { name: 'PATH' }))
  assert.equal(textOf(await call(client, 'sleep', { ms: 1 })), 'slept 1 ms')
})

test('plans of the two other tools load as they are', async () => {
  const theirs = await wrap(stdioScript, {
    seed: 7,
    faults: [{ type: 'error_injection', rate: 1, tools: ['echo'] }],
  })
  await assert.rejects(call(theirs.client, 'echo', { text: 'hi' }))
  assert.match(textOf(await call(theirs.client, 'pid')), /^\d+$/)

  const others = await wrap(stdioScript, { target: '*/echo', config: { type: 'connection-refused' } })
  await assert.rejects(call(others.client, 'echo', { text: 'hi' }))
  assert.match(textOf(await call(others.client, 'pid')), /^\d+$/)
})

test('a crash is an error of the calls that it hits; those after it find a new process', async () => {
  const { client } = await wrap(stdioScript)
  const before = textOf(await call(client, 'pid'))
  await assert.rejects(call(client, 'crash'))
  let pid: string | undefined
  await until('the program runs again', async () => {
    pid = await call(client, 'pid').then(textOf, () => undefined)
    return pid !== undefined
  })
  assert.notEqual(pid, before)
})

test('SIGTERM ends the wrap command with 0 while its input is open and a call hangs', async () => {
  const hold = { ...always, name: 'hang', type: 'conn.half_open', hold: '5m', match: { tool: 'echo' } }
  const { client, pid } = await wrap(stdioScript, [hold])
  const hanging = assert.rejects(call(client, 'echo', { text: 'hi' }))
  await call(client, 'pid')
  process.kill(pid, 'SIGTERM')
  await hanging
  await until('the process is gone', () => !isAlive(pid))
})

test('a call that runs when SIGTERM comes is told that it may have run', async () => {
  const { client, pid } = await wrap(stdioScript)
  const running = call(client, 'sleep', { ms: 60_000 })
  await call(client, 'pid')
  process.kill(pid, 'SIGTERM')
  await assert.rejects(running, (error: Error & { data?: { code?: string; sent?: boolean } }) => {
    assert.deepEqual([error.data?.code, error.data?.sent], ['BW_SHUTTING_DOWN', true])
    return true
  })
  await until('the process is gone', () => !isAlive(pid))
})

test('SIGUSR2 throws the kill switch: calls that a fault holds go on, and nothing is injected any more', async () => {
  const hold = { ...always, name: 'hang', type: 'conn.half_open', hold: '5m', match: { tool: 'echo' } }
  const { client, pid } = await wrap(stdioScript, [hold])
  const held = call(client, 'echo', { text: 'held' })
  await call(client, 'pid')
  process.kill(pid, 'SIGUSR2')
  assert.equal(textOf(await held), 'held')
  assert.equal(textOf(await call(client, 'echo', { text: 'free' })), 'free')
})
