import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import type { PipeEvents } from '../../src/upstreams/pipe/pipe.ts'
import { Experience, Start } from '../../src/upstreams/stdio/start.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { ask, open, pidOf, result, stdioUpstream } from '../support/stdio.ts'

const limits = { startMs: 180_000, handshakeMs: 10_000 }

const deaf: PipeEvents = {
  message: () => undefined,
  overlong: () => undefined,
  closed: () => undefined,
}

/** A start whose process says whatever the test wants. */
async function begin(experience = new Experience()) {
  const clock = new ManualClock()
  const start = new Start({ key: 'mcpServers.it.timeouts', limits, experience, clock })
  let heard = deaf
  const connect = start.watch((events) => {
    heard = events
    return Promise.resolve({
      lastWords: '"downloading"',
      send: () => Promise.resolve(),
      shape: () => () => undefined,
      close: () => Promise.resolve(),
    })
  })
  await connect(deaf, start.signal)
  return { clock, start, speak: () => heard.message('{}') }
}

const messageOf = ({ signal }: Start) => (signal.reason as { readonly message: string } | undefined)?.message

test('a process that has never spoken has the time of a start, and the error names its key', async () => {
  const { clock, start } = await begin()
  await clock.advance(179_999)
  assert.equal(start.signal.aborted, false)
  await clock.advance(1)
  assert.equal(
    messageOf(start),
    'the server\'s process wrote nothing within 3m of its start (mcpServers.it.timeouts.start): "downloading"',
  )
})

test('a process that has spoken has the time of a handshake from then on', async () => {
  const { clock, start, speak } = await begin()
  await clock.advance(100_000)
  void speak()
  await clock.advance(9_999)
  assert.equal(start.signal.aborted, false)
  await clock.advance(1)
  assert.match(
    messageOf(start) ?? '',
    /^the handshake took longer than 10s \(mcpServers\.it\.timeouts\.discovery\)/,
  )
})

test('a program that came up before has three times as long as that took, within both limits', () => {
  const experience = new Experience()
  assert.equal(experience.patienceFor(limits), 180_000)
  experience.learn(500)
  assert.equal(experience.patienceFor(limits), 10_000)
  experience.learn(20_000)
  experience.learn(300)
  assert.equal(experience.patienceFor(limits), 60_000)
  experience.learn(100_000)
  assert.equal(experience.patienceFor(limits), 180_000)
})

test('a start that is over has no limit', async () => {
  const { clock, start } = await begin()
  start.end(true)
  await clock.advance(1_000_000)
  assert.equal(start.signal.aborted, false)
})

test('a shared process goes on starting when nobody waits for it', async (t) => {
  const upstream = stdioUpstream(t)
  const patience = new AbortController()
  const opening = upstream.open(
    { id: 'c', initializeParams: {}, listening: false, era: 'legacy', receive: () => undefined },
    patience.signal,
  )
  patience.abort(gatewayError('attempt_timeout', 'too slow'))
  await assert.rejects(opening)
  assert.equal(upstream.processes(), 1)
  assert.ok(await pidOf(await open(upstream)))
  assert.equal(upstream.processes(), 1)
})

test('stderr of a running process may be about one agent, so the error of its end does not repeat it', async (t) => {
  const upstreamSession = await open(stdioUpstream(t))
  await result(ask(upstreamSession, 'raw/stderr', { text: 'error: about one agent' }))
  const pid = await pidOf(upstreamSession)
  const ended = new Promise<void>((resolve) =>
    upstreamSession.ended.addEventListener('abort', () => resolve()),
  )
  process.kill(pid, 'SIGKILL')
  await ended
  const { message } = upstreamSession.ended.reason as { readonly message: string }
  assert.equal(message, "the server's process was ended by SIGKILL")
})

test('the error tells a file without execute permission from a missing file', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-start-'))
  t.after(() => rm(folder, { recursive: true }))
  const file = join(folder, 'program')
  await writeFile(file, '#!/no/such/interpreter\n')
  await assert.rejects(open(stdioUpstream(t, { command: file, args: [] })), {
    message: /^permission denied: /,
  })
  await chmod(file, 0o755)
  await assert.rejects(open(stdioUpstream(t, { command: file, args: [] })), {
    message: /the interpreter in its first line \(#!\) does not exist$/,
  })
})
