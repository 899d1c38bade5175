import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { Experience, Start } from '../../src/upstreams/stdio/start.ts'
import { Restarts } from '../../src/upstreams/stdio/stdio.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'

const died = gatewayError('upstream_disconnected', "the server's process exited with code 1")

function restarts() {
  const clock = new ManualClock()
  const { log, lines } = recordedLog()
  const restarts = new Restarts(clock, log)
  const limits = { startMs: 180_000, handshakeMs: 10_000 }
  const open = <Held extends { readonly ended: AbortSignal; readonly hasWorked: boolean }>(
    owner: object,
    opening: () => Promise<Held>,
  ) => {
    const parts = { key: 'mcpServers.test.timeouts', limits, experience: new Experience(), clock }
    return restarts.open(owner, new Start(parts), opening)
  }
  return { clock, lines, restarts: { open } }
}

/** Starts a process; the test ends its conversation. */
const running = () => {
  const end = new AbortController()
  return { ended: end.signal, hasWorked: false, end }
}

test('a process that crashed is not started before its pause is over', async () => {
  const { clock, lines, restarts: owners } = restarts()
  const owner = {}
  const { end } = await owners.open(owner, () => Promise.resolve(running()))
  end.abort(died)
  let starts = 0
  const again = () => owners.open(owner, () => Promise.resolve({ ...running(), number: ++starts }))
  await assert.rejects(again(), {
    reason: 'upstream_unavailable',
    message: "the server's process exited with code 1; it is not started again before 1s have passed",
    sent: false,
    retryAfterMs: 1_000,
  })
  assert.equal(starts, 0)
  await clock.advance(1_000)
  assert.equal((await again()).number, 1)
  assert.deepEqual(
    lines.map(({ reason, retryAfterMs }) => ({ reason, retryAfterMs })),
    [{ reason: 'upstream_disconnected', retryAfterMs: 1_000 }],
  )
})

test('a process that never got through its handshake counts as crashed, and says for how long', async () => {
  const { restarts: owners } = restarts()
  const owner = {}
  const open = () => Promise.reject(died)
  await assert.rejects(owners.open(owner, open), { ...died, retryAfterMs: 1_000, notStarted: true })
  await assert.rejects(owners.open(owner, open), {
    reason: 'upstream_unavailable',
    message: "the server's process exited with code 1; it is not started again before 1s have passed",
    notStarted: true,
  })
})

test('the crash of one process delays no other process', async () => {
  const { restarts: owners } = restarts()
  const { end } = await owners.open({}, () => Promise.resolve(running()))
  end.abort(died)
  const other = running()
  assert.equal(await owners.open({}, () => Promise.resolve(other)), other)
})

test('a conversation that was closed on purpose is no crash', async () => {
  const { lines, restarts: owners } = restarts()
  const owner = {}
  const { end } = await owners.open(owner, () => Promise.resolve(running()))
  end.abort(gatewayError('cancelled', 'the conversation was closed'))
  const next = running()
  assert.equal(await owners.open(owner, () => Promise.resolve(next)), next)
  assert.deepEqual(lines, [])
})
