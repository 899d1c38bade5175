import assert from 'node:assert/strict'
import { newCall, TestChannel } from '../support/caller.ts'
import { until } from '../support/until.ts'
import { resultOf, returned, promising, talk, type MakeSubject, type Traits } from './subject.ts'

const assistant = '{"role":"assistant","model":"m","content":{"type":"text","text":"!"}}'

/** Contract: messages besides requests and replies. */
export function messages(kind: string, make: MakeSubject, { shared = false }: Traits): void {
  const it = promising(kind)

  it("progress comes in order, under the caller's token, before the reply", async (t) => {
    const { upstreamSession, caller } = await talk(t, make, 'contract')
    for (const progressToken of ['mine', 0]) {
      const channel = new TestChannel()
      const params = { name: 'progress', arguments: { steps: 20 }, _meta: { progressToken } }
      const outcome = await upstreamSession.exchange(
        newCall({ method: 'tools/call', params, caller, channel }),
      )
      assert.equal(returned(outcome), 20)
      const told = channel.of('notifications/progress').map(({ value }) => value.params)
      assert.deepEqual(
        told,
        Array.from({ length: 20 }, (_, n) => ({ progressToken, progress: n + 1 })),
      )
      for (const { text, value } of channel.of('notifications/progress'))
        assert.deepEqual(JSON.parse(text), value)
    }
  })

  it('log messages of a server during a call come through its channel', async (t) => {
    const { tool } = await talk(t, make, 'contract')
    const channel = new TestChannel()
    await tool('log', { level: 'info', count: 3 }, { channel })
    assert.equal(channel.of('notifications/message').length, 3)
  })

  it('the server can ask in the course of a call, and gets the answer', async (t) => {
    const { tool } = await talk(t, make, 'contract')
    const channel = new TestChannel({
      'sampling/createMessage': assistant,
      'elicitation/create': '{"action":"decline"}',
    })
    const [sampled, elicited] = await Promise.all([
      tool('sample', {}, { channel }),
      tool('elicit', {}, { channel }),
    ])
    assert.deepEqual(returned(sampled), JSON.parse(assistant))
    assert.deepEqual(returned(elicited), { action: 'decline' })
  })

  it('a question and its answer pass without a rewrite', async (t) => {
    const { ask } = await talk(t, make, 'raw')
    const channel = new TestChannel({ 'sampling/createMessage': '{"z":1.0,"n":12345678901234567890}' })
    for (const id of ['12345678901234567890', '"q\\u0031"']) {
      const outcome = await ask('raw/ask', { id, method: 'sampling/createMessage' }, { channel })
      assert.equal(
        resultOf(outcome).answer,
        `{"jsonrpc":"2.0","id":${id},"result":{"z":1.0,"n":12345678901234567890}}`,
      )
    }
    assert.ok(channel.received.every(({ message }) => message.text.includes('"params":{"x":1.0}')))
  })

  it("a reply to nobody's request is dropped, and unknown notifications pass as they are", async (t) => {
    const { ask, caller } = await talk(t, make, 'raw')
    const channel = new TestChannel()
    const news =
      '{"jsonrpc":"2.0","x-top":1.0,"method":"notifications/vendor/news","params":{"n":12345678901234567890}}'
    const texts = [
      '{"jsonrpc":"2.0","id":4711,"result":{}}',
      '{"jsonrpc":"2.0","id":"other","result":{}}',
      news,
    ]
    assert.deepEqual(resultOf(await ask('raw/say', { texts }, { channel })), { said: true })
    const passed = [...channel.received, ...caller.received].map(({ message }) => message.text)
    assert.deepEqual(passed, [news])
  })

  it('messages of a server outside of calls reach a caller that listens', async (t) => {
    const { tool, upstreamSession, caller } = await talk(t, make, 'contract')
    upstreamSession.listen()
    upstreamSession.listen()
    await until('a change of the tools is told', async () => {
      await tool('change_tools')
      return caller.of('notifications/tools/list_changed').length > 0
    })
  })

  it('changes of a resource are reported during a subscription', async (t) => {
    const { tool, ask, upstreamSession, caller } = await talk(t, make, 'contract')
    const uri = 'file:///a'
    upstreamSession.listen()
    assert.equal(returned(await tool('touch', { uri })), false)
    resultOf(await ask('resources/subscribe', { uri }))
    await until('a change of the resource is told', async () => {
      assert.equal(returned(await tool('touch', { uri })), true)
      return caller.of('notifications/resources/updated').length > 0
    })
    resultOf(await ask('resources/unsubscribe', { uri }))
    assert.equal(returned(await tool('touch', { uri })), false)
  })

  it('a notification of the caller reaches the server', async (t) => {
    const { tool, upstreamSession } = await talk(t, make, 'contract')
    await upstreamSession.post('{"jsonrpc":"2.0","method":"notifications/vendor/news","params":{}}')
    await until('the notification has arrived', async () => {
      return (returned(await tool('notifications')) as string[]).includes('notifications/vendor/news')
    })
  })

  it(shared ? 'a slow channel costs its call' : 'a slow channel holds the server back', async (t) => {
    const [count, bytes] = [400, 256 * 1024]
    const [slow, fast] = [await talk(t, make, 'raw'), await talk(t, make, 'raw')]
    const [held, free] = [new TestChannel(), new TestChannel()]
    held.hold()
    const flood = slow.ask('raw/flood', { count, bytes }, { channel: held })
    resultOf(await fast.ask('raw/flood', { count, bytes }, { channel: free }))
    assert.equal(free.received.length, count)
    const { length } = held.received
    assert.ok(length > 0 && length < count / 4, `${length} of ${count} came through a full channel`)
    if (shared) {
      const outcome = await flood
      return assert.equal(outcome.kind === 'failed' && outcome.error.reason, 'overloaded')
    }
    held.release()
    resultOf(await flood)
    assert.equal(held.received.length, count)
  })
}
