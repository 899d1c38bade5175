import assert from 'node:assert/strict'
import { mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { returned } from '../contract/subject.ts'
import { capableClient, TestCaller, toolCall } from '../support/caller.ts'
import { fixtureCommand } from '../support/fixture.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { isAlive, ownChildren } from '../support/processes.ts'
import { ask, open, pidOf, result, stdioUpstream } from '../support/stdio.ts'
import { until } from '../support/until.ts'

const program = (script: string) => ({ command: process.execPath, args: ['-e', script] })

/** A server that writes bytes before its first answer; its tool answers with invalid JSON. */
const sloppy = (before: string) =>
  program(`
    let before = ${JSON.stringify(before)}
    const serverInfo = { name: 'sloppy', version: '1' }
    const results = { initialize: { protocolVersion: '2025-11-25', capabilities: {}, serverInfo }, ping: {} }
    require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
      const { id, method } = JSON.parse(line)
      if (id === undefined) return
      const result = method in results ? JSON.stringify(results[method]) : '{"value":NaN}'
      process.stdout.write(before + '{"jsonrpc":"2.0","id":' + id + ',"result":' + result + '}\\n')
      before = ''
    })`)

const tooSlow = gatewayError('attempt_timeout', 'too slow')

test('callers share one process, which is told of the gateway', async (t) => {
  const upstream = stdioUpstream(t, fixtureCommand('contract', 'stdio'))
  const upstreamSessions = await Promise.all([open(upstream), open(upstream), open(upstream)])
  const pids = await Promise.all(
    upstreamSessions.map((upstreamSession) => upstreamSession.exchange(toolCall('pid')).then(returned)),
  )
  assert.equal(new Set(pids).size, 1)
  assert.deepEqual(returned(await (upstreamSessions[0] ?? assert.fail()).exchange(toolCall('client'))), {
    info: { name: 'gateway', version: '1.0.0' },
    capabilities: { sampling: {}, elicitation: { form: {}, url: {} } },
  })
})

test('with a process each, callers are told apart, and the server hears of each', async (t) => {
  const upstream = stdioUpstream(t, { ...fixtureCommand('contract', 'stdio'), sharing: 'per_session' })
  const upstreamSessions = await Promise.all([open(upstream), open(upstream)])
  const pids = await Promise.all(
    upstreamSessions.map((upstreamSession) => upstreamSession.exchange(toolCall('pid')).then(returned)),
  )
  assert.equal(new Set(pids).size, 2)
  const { info, capabilities } = returned(
    await (upstreamSessions[0] ?? assert.fail()).exchange(toolCall('client')),
  ) as {
    info: unknown
    capabilities: { roots: unknown }
  }
  assert.deepEqual(info, capableClient.clientInfo)
  assert.deepEqual(capabilities.roots, { listChanged: true })
})

test('a caller that leaves a shared process does not end it', async (t) => {
  const upstream = stdioUpstream(t)
  const [leaver, stayer] = await Promise.all([open(upstream), open(upstream)])
  const pid = await pidOf(leaver)
  await leaver.close()
  assert.equal(await pidOf(stayer), pid)
  assert.equal(await pidOf(await open(upstream)), pid)
})

test("a caller's own process ends with its conversation", async (t) => {
  const upstream = stdioUpstream(t, { sharing: 'per_session' })
  const [leaver, stayer] = await Promise.all([open(upstream), open(upstream)])
  const pid = await pidOf(leaver)
  await leaver.close()
  assert.equal(isAlive(pid), false)
  assert.ok(await pidOf(stayer))
})

test('a server gets the configured environment and folder, and no secret of ours', async (t) => {
  process.env.SECRET_OF_OURS = 'secret'
  t.after(() => delete process.env.SECRET_OF_OURS)
  const upstreamSession = await open(stdioUpstream(t, { env: { KEY: 'of the server' }, cwd: tmpdir() }))
  const { env, cwd } = (await result(ask(upstreamSession, 'raw/surroundings'))) as {
    env: Record<string, string>
    cwd: string
  }
  assert.deepEqual([env.KEY, env.PATH, env.SECRET_OF_OURS], ['of the server', process.env.PATH, undefined])
  assert.equal(cwd, realpathSync(tmpdir()))
})

for (const [what, before] of [
  ['a byte order mark', '\ufeff'],
  ['a banner without a line end', 'Listening { on: "stdio" } ... '],
  ['both', '\ufeffready> '],
] as const)
  test(`${what} before the first answer of a process is passed over`, async (t) => {
    const session = await open(stdioUpstream(t, { ...sloppy(before), era: 'legacy' }))
    assert.equal((session.initializeResult.value.serverInfo as { name: string }).name, 'sloppy')
    assert.deepEqual(await result(ask(session, 'ping')), {})
  })

test('an answer of a process that is no JSON fails its call at once, and the process goes on', async (t) => {
  const session = await open(stdioUpstream(t, { ...sloppy(''), clock: new ManualClock(), era: 'legacy' }))
  const outcome = await session.exchange(toolCall('t'))
  assert.ok(outcome.kind === 'failed' && outcome.error.reason === 'bad_reply' && outcome.error.sent)
  assert.deepEqual(await result(ask(session, 'ping')), {})
})

test('a program that does not exist is named, and so is a folder that does not', async (t) => {
  const missing = open(stdioUpstream(t, { command: 'no-such-program', clock: new ManualClock() }))
  const message = 'command not found: no-such-program'
  await assert.rejects(missing, { reason: 'upstream_unavailable', message, sent: false, retryAfterMs: 1_000 })
  const inOne = open(stdioUpstream(t, { command: 'no-such-program --stdio', clock: new ManualClock() }))
  await assert.rejects(inOne, { message: `${message} --stdio; its arguments go into "args"` })
  const folder = mkdtempSync(join(tmpdir(), 'breakwater-cwd-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const loop = join(folder, 'loop')
  symlinkSync(loop, loop)
  const file = join(folder, 'file')
  writeFileSync(file, '')
  for (const cwd of ['/no/such/folder', file, loop]) {
    const misplaced = open(stdioUpstream(t, { cwd }))
    await assert.rejects(misplaced, {
      reason: 'upstream_unavailable',
      message: `cannot start ${process.execPath}: the working folder does not exist, or may not be entered: ${cwd}`,
    })
  }
  const oversized = open(stdioUpstream(t, { env: { LARGE: 'x'.repeat(4 * 1024 ** 2) } }))
  await assert.rejects(oversized, { reason: 'upstream_unavailable', message: /\(E2BIG\)/ })
})

test('a program that ends at once is unavailable, and may wait longer each time', async (t) => {
  const clock = new ManualClock()
  const upstream = stdioUpstream(t, { ...program('process.exit(7)'), clock })
  for (const retryAfterMs of [1_000, 2_000, 4_000]) {
    await assert.rejects(open(upstream), {
      reason: 'upstream_unavailable',
      message: /exited with code 7/,
      retryAfterMs,
    })
    await assert.rejects(open(upstream), { reason: 'upstream_unavailable', retryAfterMs, sent: false })
    await clock.advance(retryAfterMs)
  }
})

test("the handshake of a caller's own process that it waits for no more takes the process along", async (t) => {
  const before = ownChildren()
  const upstream = stdioUpstream(t, { ...program('setInterval(() => {}, 1000)'), sharing: 'per_session' })
  const patience = new AbortController()
  const opening = upstream.open(new TestCaller(), patience.signal)
  await until('the process runs', () => ownChildren().length > before.length)
  patience.abort(tooSlow)
  await assert.rejects(opening, { reason: tooSlow.reason, sent: false })
  await until('the process is gone', () => ownChildren().length === before.length)
})

test('one opener that gives up does not fail the others', async (t) => {
  const upstream = stdioUpstream(t)
  const patience = new AbortController()
  const impatient = upstream.open(new TestCaller(), patience.signal)
  const patient = open(upstream)
  patience.abort(tooSlow)
  await assert.rejects(impatient, tooSlow)
  assert.ok(await pidOf(await patient))
})

test("a server's stderr is logged under its name, line by line", async (t) => {
  const { log, lines } = recordedLog()
  const upstreamSession = await open(stdioUpstream(t, { log }))
  await result(ask(upstreamSession, 'raw/stderr', { text: `one\ntwo\n${'x'.repeat(100_000)}\nlast` }))
  await until(
    'the complaints are logged',
    () => lines.filter(({ stderr }) => stderr !== undefined).length === 3,
  )
  const [one, two, long] = lines.filter(({ stderr }) => stderr !== undefined)
  assert.deepEqual([one?.stderr, one?.server, two?.stderr], ['one', 'test', 'two'])
  assert.ok(String(long?.stderr).length < 2_000)
})

test('a closed upstream starts nothing', async (t) => {
  const upstream = stdioUpstream(t)
  await upstream.close()
  await assert.rejects(open(upstream), { reason: 'shutting_down' })
})

test('closing ends a process whose handshake is under way', async (t) => {
  const before = ownChildren()
  const upstream = stdioUpstream(t, program('setInterval(() => {}, 1000)'))
  const opening = assert.rejects(open(upstream), { sent: false })
  await upstream.close()
  await opening
  assert.equal(ownChildren().length, before.length)
})
