import assert from 'node:assert/strict'
import { newCall } from '../support/caller.ts'
import { MAX_REPLY, resultOf, returned, promising, talk, type MakeSubject } from './subject.ts'

/** Contract: replies to requests. */
export function answers(kind: string, make: MakeSubject): void {
  const it = promising(kind)

  it('the initialize result is what the server said, byte by byte', async (t) => {
    const { upstreamSession } = await talk(t, make, 'raw')
    assert.ok(upstreamSession.initializeResult.text.includes('"x-big":12345678901234567890'))
    assert.ok(upstreamSession.initializeResult.text.includes('"x-unknown":{"b":1,"a":2.0}'))
    assert.deepEqual(upstreamSession.initializeResult.value.serverInfo, { name: 'raw', version: '1' })
    assert.equal(upstreamSession.ended.aborted, false)
  })

  it('a request and its reply pass without a rewrite', async (t) => {
    const { upstreamSession, caller } = await talk(t, make, 'raw')
    const params =
      '{"z":1.0,"n":12345678901234567890,"x-unknown":[null,1e2],"\\u0061":"\\u00e9","_meta":{"x":2.50}}'
    const text = `{"method":"raw/mirror","x-top":1.0,"params":${params},"id":"mine","jsonrpc":"2.0"}`
    const outcome = await upstreamSession.exchange(newCall({ method: 'raw/mirror', text, caller }))
    const request = String(resultOf(outcome).request)
    assert.equal(request.replace(/"id":[^,]+,/, '"id":"mine",'), text)
    assert.ok(outcome.kind === 'answered')
    assert.ok(outcome.result.text.startsWith('{"x-envelope":1.0,"jsonrpc":"2.0","result":{ "request":'))
    assert.ok(
      outcome.result.text.endsWith(
        '"z":1.0, "big":98765432109876543210,"a":null,"\\u0061b":"\\u00e9"},"id":"mine"}',
      ),
    )
    assert.deepEqual(JSON.parse(outcome.result.text), outcome.result.value)
    assert.equal(outcome.result.status, 200)
  })

  it('a reply carries the id of its call, whatever kind of id that is', async (t) => {
    const { upstreamSession, caller } = await talk(t, make, 'raw')
    for (const id of ['"text"', '""', '0', '-7', '"\\u00e9"']) {
      const text = `{"jsonrpc":"2.0","id":${id},"method":"ping"}`
      const outcome = await upstreamSession.exchange(newCall({ method: 'ping', text, caller }))
      assert.ok(outcome.kind === 'answered')
      assert.ok(outcome.result.text.endsWith(`,"id":${id}}`), outcome.result.text)
      assert.equal(outcome.result.value.id, JSON.parse(id))
    }
  })

  it('calls at the same time get their own replies', async (t) => {
    const { tool } = await talk(t, make, 'contract')
    const numbers = Array.from({ length: 50 }, (_, n) => n)
    const outcomes = await Promise.all(numbers.map((n) => tool('echo', { n }, { id: n })))
    assert.deepEqual(
      outcomes.map(returned),
      numbers.map((n) => ({ n })),
    )
  })

  it('a reply gets a verdict', async (t) => {
    const { ask } = await talk(t, make, 'raw')
    const verdicts = []
    for (const method of ['raw/no_such_method', 'raw/is_error', 'ping']) {
      const call = newCall({ method })
      const outcome = await ask(method)
      verdicts.push(outcome.kind === 'answered' && outcome.verdict)
      assert.equal(call.record.sent, false)
    }
    assert.deepEqual(verdicts, ['rpc_error', 'tool_error', 'unchecked'])
  })

  it('an error of the server passes with its data', async (t) => {
    const { tool } = await talk(t, make, 'contract')
    const outcome = await tool('refuse')
    assert.ok(outcome.kind === 'answered' && outcome.verdict === 'rpc_error')
    const { code, data } = outcome.result.value.error as { code: number; data: unknown }
    assert.deepEqual({ code, data }, { code: -32602, data: { detail: 1 } })
  })

  it('a large reply is whole, and one over the limit ends its call', async (t) => {
    const { ask, upstreamSession, caller } = await talk(t, make, 'raw')
    const large = resultOf(await ask('raw/size', { bytes: MAX_REPLY - 1_000 }))
    assert.equal(String(large.padding).length, MAX_REPLY - 1_000)
    const call = newCall({ method: 'raw/size', params: { bytes: MAX_REPLY * 2 }, caller })
    const tooLarge = await upstreamSession.exchange(call)
    assert.ok(tooLarge.kind === 'failed', 'failed')
    assert.deepEqual(
      [tooLarge.error.reason, tooLarge.error.sent, call.record.sent],
      ['reply_too_large', true, true],
    )
  })
}
