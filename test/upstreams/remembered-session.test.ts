import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome } from '../../src/mesh/call.ts'
import { gatewayError, type GatewayError } from '../../src/mesh/errors.ts'
import { RememberedSession } from '../../src/upstreams/shared/remembered-session.ts'
import { SessionState } from '../../src/upstreams/shared/session-state.ts'
import type { UpstreamSession } from '../../src/upstreams/upstream.ts'
import { newCall } from '../support/caller.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'

const failed = (call: Call): Outcome => ({ kind: 'failed', error: call.signal.reason as GatewayError })

/** A session whose server never answers, and the requests it got. */
function silent() {
  const asked: string[] = []
  const end = new AbortController()
  const session: UpstreamSession = {
    initializeResult: { text: '{}', value: {} },
    keepsState: true,
    ended: end.signal,
    exchange(call) {
      asked.push(call.method)
      return new Promise((resolve) => {
        call.signal.addEventListener('abort', () => resolve(failed(call)))
        end.signal.addEventListener('abort', () =>
          resolve({ kind: 'failed', error: end.signal.reason as GatewayError }),
        )
      })
    },
    post: () => Promise.resolve(),
    listen: () => undefined,
    close: () => Promise.resolve(end.abort(gatewayError('cancelled', 'closed'))),
  }
  return { asked, end, session }
}

/** The state an agent's next session receives. */
function asked(): SessionState {
  const state = new SessionState()
  state.note(newCall({ method: 'logging/setLevel', params: { level: 'debug' } }))
  state.note(newCall({ method: 'resources/subscribe', params: { uri: 'file:///a' } }))
  return state
}

test('a server that ignores the repeated state still has a session, after 5 s', async () => {
  const clock = new ManualClock()
  const { log, lines } = recordedLog()
  const { asked: methods, session } = silent()
  const telling = RememberedSession.tell(
    session,
    asked(),
    { server: 's', clock, log },
    new AbortController().signal,
  )
  await clock.advance(5_000)
  const told = await telling
  assert.equal(told.isAskedToRemember, true)
  assert.equal(session.ended.aborted, false)
  assert.deepEqual(methods, ['logging/setLevel'])
  assert.equal(lines.length, 1)
  assert.equal(clock.pending, 0)
})

test('a session that ends or is abandoned while its state is repeated does not open', async () => {
  for (const cause of ['end', 'gone'] as const) {
    const clock = new ManualClock()
    const { end, session } = silent()
    const gone = new AbortController()
    const state = asked()
    const telling = RememberedSession.tell(
      session,
      state,
      { server: 's', clock, log: recordedLog().log },
      gone.signal,
    )
    const why = gatewayError('upstream_disconnected', 'the process ended')
    ;(cause === 'end' ? end : gone).abort(why)
    await assert.rejects(telling, (error) => error === why)
    assert.equal(session.ended.aborted, true)
    // The replayed state may have killed the process.
    assert.equal(state.isEmpty, cause === 'end')
    assert.equal(clock.pending, 0)
  }
})
