import assert from 'node:assert/strict'
import type { GatewayError } from '../../src/mesh/errors.ts'
import { TestCaller } from '../support/caller.ts'
import { resultOf, promising, talk, type MakeSubject } from './subject.ts'

/** Contract: the ends of conversations. */
export function endings(kind: string, make: MakeSubject): void {
  const it = promising(kind)

  it('when the server goes away, sent calls fail as sent', async (t) => {
    const { ask } = await talk(t, make, 'raw')
    const waiting = ask('raw/late')
    const fatal = ask('raw/exit', { code: 3 })
    for (const outcome of await Promise.all([waiting, fatal])) {
      assert.ok(outcome.kind === 'failed', 'failed')
      assert.deepEqual([outcome.error.reason, outcome.error.sent], ['upstream_disconnected', true])
    }
  })

  it('a closed conversation ends its own calls, and no others', async (t) => {
    const { ask, upstreamSession } = await talk(t, make, 'raw')
    const waiting = ask('raw/late')
    resultOf(await ask('ping'))
    await Promise.all([upstreamSession.close(), upstreamSession.close()])
    const [before, after] = [await waiting, await ask('ping')]
    assert.ok(before.kind === 'failed' && after.kind === 'failed', 'both failed')
    assert.deepEqual([before.error.sent, after.error.sent], [true, false])
    assert.equal(upstreamSession.ended.aborted, true)
    assert.equal((upstreamSession.ended.reason as GatewayError).reason, 'cancelled')
    await assert.rejects(upstreamSession.post('{"jsonrpc":"2.0","method":"notifications/x"}'), {
      sent: false,
    })
  })

  it('a caller may come back after closing its conversation', async (t) => {
    const { upstreamSession, upstream, caller } = await talk(t, make, 'raw')
    await upstreamSession.close()
    const again = await upstream.open(caller, new AbortController().signal)
    assert.deepEqual(
      [again.ended.aborted, again.initializeResult.value.protocolVersion],
      [false, '2025-11-25'],
    )
  })

  it('closing the upstream ends all conversations', async (t) => {
    const { upstreamSession, upstream, ask } = await talk(t, make, 'raw')
    const other = await upstream.open(new TestCaller(), new AbortController().signal)
    const waiting = ask('raw/late')
    resultOf(await ask('ping'))
    await upstream.close()
    assert.equal((await waiting).kind, 'failed')
    assert.deepEqual([upstreamSession.ended.aborted, other.ended.aborted], [true, true])
    await assert.rejects(upstream.open(new TestCaller(), new AbortController().signal), { sent: false })
  })
}
