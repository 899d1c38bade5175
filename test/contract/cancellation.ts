import assert from 'node:assert/strict'
import { gatewayError } from '../../src/mesh/errors.ts'
import { TestCaller, toolCall } from '../support/caller.ts'
import { until } from '../support/until.ts'
import { resultOf, returned, promising, talk, type MakeSubject } from './subject.ts'

const tooSlow = gatewayError('attempt_timeout', 'no answer in time')

/** Contract: cancelled calls. */
export function cancellation(kind: string, make: MakeSubject): void {
  const it = promising(kind)

  it('an aborted call ends at once with the reason, and the server is told', async (t) => {
    const { tool, upstreamSession, caller } = await talk(t, make, 'contract')
    const patience = new AbortController()
    const call = toolCall('wait', {}, { caller, signal: patience.signal })
    const waiting = upstreamSession.exchange(call)
    returned(await tool('echo', {}))
    patience.abort(tooSlow)
    assert.deepEqual(await waiting, { kind: 'failed', error: { ...tooSlow, sent: true } })
    assert.equal(call.record.sent, true)
    await until('the server knows of the cancellation', async () => {
      return (returned(await tool('cancelled')) as unknown[]).length > 0
    })
    assert.deepEqual(returned(await tool('cancelled')), [tooSlow.message])
  })

  it('a call aborted before its start is not sent', async (t) => {
    const { upstreamSession, caller } = await talk(t, make, 'contract')
    const call = toolCall('wait', {}, { caller, signal: AbortSignal.abort(tooSlow) })
    assert.deepEqual(await upstreamSession.exchange(call), { kind: 'failed', error: tooSlow })
  })

  it('an answer that comes too late is dropped', async (t) => {
    const { ask } = await talk(t, make, 'raw')
    const patience = new AbortController()
    const late = ask('raw/late', {}, { signal: patience.signal })
    resultOf(await ask('ping'))
    patience.abort(tooSlow)
    assert.equal((await late).kind, 'failed')
    for (let i = 0; i < 5; i++) assert.deepEqual(resultOf(await ask('ping')), {})
  })

  it('a conversation is not begun for a caller that has given up', async (t) => {
    const { upstream } = await talk(t, make, 'contract')
    await assert.rejects(upstream.open(new TestCaller(), AbortSignal.abort(tooSlow)), {
      reason: tooSlow.reason,
      sent: false,
    })
  })
}
