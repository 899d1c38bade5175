import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TestCaller } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { isAlive, openFiles, ownChildren } from '../support/processes.ts'
import { ask, open, pidOf, result, stdioUpstream } from '../support/stdio.ts'
import { until } from '../support/until.ts'

test('a killed process fails its calls, and is started again after a pause', async (t) => {
  const clock = new ManualClock()
  const upstream = stdioUpstream(t, { clock })
  const upstreamSession = await open(upstream)
  const pid = await pidOf(upstreamSession)
  const pending = ask(upstreamSession, 'raw/late')
  await result(ask(upstreamSession, 'ping'))
  process.kill(pid, 'SIGKILL')
  const failed = await pending
  assert.ok(failed.kind === 'failed')
  assert.deepEqual([failed.error.reason, failed.error.sent], ['upstream_disconnected', true])
  assert.match(failed.error.message, /SIGKILL/)
  assert.equal(upstreamSession.ended.aborted, true)
  await assert.rejects(open(upstream), { reason: 'upstream_unavailable', retryAfterMs: 1_000 })
  await clock.advance(1_000)
  assert.notEqual(await pidOf(await open(upstream)), pid)
})

test("one caller's crashes do not keep another one waiting", async (t) => {
  const upstream = stdioUpstream(t, { sharing: 'per_session', clock: new ManualClock() })
  const unlucky = new TestCaller()
  await ask(await open(upstream, unlucky), 'raw/exit', { code: 1 })
  await assert.rejects(open(upstream, unlucky), { retryAfterMs: 1_000 })
  assert.ok(await pidOf(await open(upstream)))
})

test('a conversation that was closed in order is no crash', async (t) => {
  const caller = new TestCaller()
  const upstream = stdioUpstream(t, { sharing: 'per_session' })
  await (await open(upstream, caller)).close()
  assert.ok(await pidOf(await open(upstream, caller)))
})

test('fifty crashes leave nothing behind', async (t) => {
  const clock = new ManualClock()
  const upstream = stdioUpstream(t, { clock })
  const crash = async () => {
    const upstreamSession = await open(upstream)
    const pid = await pidOf(upstreamSession)
    process.kill(pid, 'SIGKILL')
    await until('the conversation is over', () => upstreamSession.ended.aborted)
    await clock.advance(30_000)
    return pid
  }
  await crash()
  const before = {
    files: openFiles(),
    handles: process.getActiveResourcesInfo().length,
    children: ownChildren(),
  }
  const pids = []
  for (let i = 0; i < 50; i++) pids.push(await crash())
  assert.deepEqual(ownChildren(), before.children)
  assert.equal(openFiles(), before.files)
  assert.equal(process.getActiveResourcesInfo().length, before.handles)
  assert.ok(!pids.some(isAlive))
  assert.equal(clock.pending, 0)
})

test('descendants of a crashed process die with it, even if they hold its output', async (t) => {
  const upstreamSession = await open(stdioUpstream(t))
  const grandchildren = [
    (await result(ask(upstreamSession, 'raw/grandchild'))).pid as number,
    (await result(ask(upstreamSession, 'raw/grandchild', { holdsOutput: true }))).pid as number,
  ]
  assert.ok(grandchildren.every(isAlive))
  const crash = await ask(upstreamSession, 'raw/exit', { code: 1 })
  assert.equal(crash.kind, 'failed')
  await until('the grandchildren are gone', () => !grandchildren.some(isAlive))
})

test('closing ends the whole group', async (t) => {
  const upstream = stdioUpstream(t)
  const upstreamSession = await open(upstream)
  const pids = [
    await pidOf(upstreamSession),
    (await result(ask(upstreamSession, 'raw/grandchild', { holdsOutput: true }))).pid as number,
  ]
  await upstream.close()
  await until('the group is gone', () => !pids.some(isAlive))
})

test('a process that ignores SIGTERM is killed, and so is a stubborn grandchild', async (t) => {
  const clock = new ManualClock()
  const upstream = stdioUpstream(t, { clock })
  const upstreamSession = await open(upstream)
  const grandchild = await result(
    ask(upstreamSession, 'raw/grandchild', { holdsOutput: true, stubborn: true }),
  )
  await result(ask(upstreamSession, 'raw/stubborn'))
  const pids = [await pidOf(upstreamSession), grandchild.pid as number]
  let closed = false
  const closing = upstream.close().then(() => (closed = true))
  await clock.advance(500 + 1_999)
  assert.deepEqual([...pids.map(isAlive), closed], [true, true, false])
  await clock.advance(1)
  await closing
  await until('the group is gone', () => !pids.some(isAlive))
})

test('an escaped descendant that holds the output delays nothing, and is ended too', async (t) => {
  const clock = new ManualClock()
  const upstream = stdioUpstream(t, { clock })
  const upstreamSession = await open(upstream)
  const escaped = (await result(ask(upstreamSession, 'raw/grandchild', { holdsOutput: true, escapes: true })))
    .pid as number
  const pid = await pidOf(upstreamSession)
  const closing = upstream.close()
  await clock.advance(500)
  await until('the leader is gone', () => !isAlive(pid))
  await clock.advance(2_000)
  await closing
  await until('the escaped process is gone', () => !isAlive(escaped))
})

test('a process that ends with its input is not signalled', async (t) => {
  const clock = new ManualClock()
  const upstream = stdioUpstream(t, { clock })
  await open(upstream)
  await upstream.close()
  assert.equal(clock.now(), 0)
})

test('a server that hangs up is ended, and its calls fail', async (t) => {
  const upstream = stdioUpstream(t)
  const upstreamSession = await open(upstream)
  const pid = await pidOf(upstreamSession)
  const pending = ask(upstreamSession, 'raw/late')
  await result(ask(upstreamSession, 'raw/hang_up'))
  await until('writing fails', async () => (await ask(upstreamSession, 'ping')).kind === 'failed')
  const failed = await pending
  assert.ok(failed.kind === 'failed' && failed.error.sent)
  await until('the process is gone', () => !isAlive(pid))
})
