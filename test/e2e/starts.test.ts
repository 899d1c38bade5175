import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json, newFolder } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

// Processes that start slowly or never. Distant deadlines, and the number of starts, tell the order of two events.

after(cleanUp)

const fixture = fileURLToPath(new URL('../fixtures/starting-server.js', import.meta.url))

interface Scene {
  readonly gateway: Gateway
  readonly starts: () => Promise<number>
}

async function start(entry: (file: string) => Json, policies?: Json): Promise<Scene> {
  const file = join(await newFolder(), 'starts')
  const gateway = await Gateway.start({ servers: { it: entry(file) }, ...(policies && { policies }) })
  const starts = async () => {
    const lines = await readFile(file, 'utf8').catch(() => '')
    return lines.split('\n').length - 1
  }
  return { gateway, starts }
}

const program =
  (how: string, number: number, more: Json = {}) =>
  (file: string): Json => ({
    command: process.execPath,
    args: [fixture, how, String(number), file],
    era: 'legacy',
    ...more,
  })

interface Failed {
  readonly message: string
  readonly data: { readonly sent: boolean; readonly retryAfterMs?: number; readonly code: string }
}

/** Returns the error of a call and its duration in milliseconds. */
async function callOf(gateway: Gateway, headers: Record<string, string> = {}) {
  const client = await RawClient.open(gateway.mcp(), { headers })
  const since = performance.now()
  const { error } = await client.call('it__hello')
  return { ...(error as Failed), ms: performance.now() - since }
}

const stateOf = async (gateway: Gateway) => (await gateway.server('it')) ?? {}

test('a server that is silent for longer than a handshake may take comes up at its first start', async () => {
  const limits = { timeouts: { discovery: '500ms', start: '2m' } }
  const { gateway, starts } = await start(program('slow', 4_000, limits))
  await until('the server is starting', async () => Number((await stateOf(gateway)).startingForMs) > 1_000)
  assert.equal((await stateOf(gateway)).state, 'starting')
  assert.equal(await gateway.metric('breakwater_server_up', 'server="it"'), 0)
  const ready = (await (await fetch(`${gateway.data}/readyz`)).json()) as Json
  assert.deepEqual(ready.servers, { it: 'starting' })
  assert.match(String((ready.starting as Json).it), /^\d+(\.\d+)?s$/)

  const { message, data } = await callOf(gateway, { 'x-breakwater-deadline-ms': '300' })
  assert.match(
    message,
    /deadline of 300ms; the server is still starting, for [\d.]+s so far \(mcpServers\.it\.timeouts\.start\)/,
  )
  assert.deepEqual([data.code, data.sent], ['BW_DEADLINE_EXCEEDED', false])

  const client = await RawClient.open(gateway.mcp())
  assert.equal(await client.say('it__hello'), 'hello')
  await gateway.waitFor('up', 'it')
  assert.equal(await starts(), 1)
  assert.equal((await stateOf(gateway)).startingForMs, undefined)
})

/** Checks the texts about a server that cannot start, in its state and in calls, which fail at once. */
async function failsFast({ gateway }: Scene, words: RegExp): Promise<void> {
  await gateway.waitFor('down', 'it')
  const { error } = await stateOf(gateway)
  assert.match(String(error), words)
  for (let n = 0; n < 8; n++) {
    const { message, data, ms } = await callOf(gateway)
    assert.match(message, words)
    assert.deepEqual([data.code, data.sent], ['BW_UPSTREAM_UNAVAILABLE', false])
    assert.ok(Number(data.retryAfterMs) > 0, message)
    assert.ok(ms < 10_000, `took ${ms} ms`)
  }
}

test('a call to a program that does not exist is answered at once', async () => {
  await failsFast(
    await start(() => ({ command: 'breakwater-no-such-command' })),
    /command not found: breakwater-no-such-command/,
  )
})

test('a call to a program that ends at once is told its last words, without what the config gives it', async () => {
  const scene = await start(program('exit', 3, { env: { FOO_KEY: 's3cret' } }))
  await failsFast(scene, /exited with code 3: "FATAL: missing API key FOO_KEY \(got \[redacted\]\)"/)
  const { gateway } = scene
  assert.ok(gateway.log.some(({ msg }) => /exited with code 3: "FATAL/.test(String(msg))))
  for (const text of [JSON.stringify(gateway.log), JSON.stringify(await stateOf(gateway))])
    assert.doesNotMatch(text, /s3cret/)
})

test('a call to a program that hangs in its handshake is answered with the reason of the last start', async () => {
  // Long enough for its last output, even on a busy machine.
  const scene = await start(program('hang', 0, { timeouts: { start: '4s', discovery: '500ms' } }))
  await failsFast(
    scene,
    /wrote nothing within 4s of its start \(mcpServers\.it\.timeouts\.start\): "waiting for the database"/,
  )
})

test('calls to a program that crashes in a loop do not wait for its next start without gate and retries', async () => {
  const { gateway, starts } = await start(program('loop', 100), { defaults: { gate: false, retry: false } })
  await until('the server has crashed three times', async () => (await starts()) >= 3)
  await until('the fourth start is not due', async () => {
    const before = await starts()
    const { message, data } = await callOf(gateway)
    const isPaused = /is not started again before/.test(message) && before === (await starts())
    if (isPaused)
      assert.deepEqual(
        [data.code, data.sent, Number(data.retryAfterMs) > 0],
        ['BW_UPSTREAM_UNAVAILABLE', false, true],
      )
    return isPaused
  })
})

test('an agent right after a crash gets a session, and a program that worked restarts soon each time', async () => {
  const { gateway, starts } = await start(program('worn', 1))
  const rounds = 4
  for (let round = 1; round <= rounds; round++) {
    const client = await RawClient.open(gateway.mcp('it'))
    assert.equal(await client.say('hello'), 'hello')
    const { error } = await client.call('hello')
    assert.equal((error as Failed).data.sent, true)
  }
  const pauses = gateway.log.flatMap(({ msg, retryAfterMs }) =>
    /exited with code 1/.test(String(msg)) && retryAfterMs !== undefined ? [retryAfterMs] : [],
  )
  assert.deepEqual(pauses, Array(rounds).fill(1_000))
  assert.equal(await starts(), rounds)
})
