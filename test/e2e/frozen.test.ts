import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { HttpToolbox, stdioToolbox } from './support/toolbox.ts'

const TIMEOUT_MS = 1_000

let gateway: Gateway
let remote: HttpToolbox

before(async () => {
  remote = await HttpToolbox.start()
  gateway = await Gateway.start({
    servers: { remote: { url: remote.url }, local: stdioToolbox(), other: stdioToolbox() },
    policies: { defaults: { attemptTimeout: { timeout: TIMEOUT_MS } } },
  })
  await gateway.waitFor('up', 'remote', 'local', 'other')
})
after(cleanUp)

for (const server of ['remote', 'local']) {
  test(`calls to a frozen ${server} server end at the timeout, while others go on`, async () => {
    const client = await RawClient.open(gateway.mcp())
    const pid = Number(await client.say(`${server}__pid`))
    process.kill(pid, 'SIGSTOP')
    const startedAt = performance.now()
    const frozen = client.call(`${server}__echo`, { text: 'anybody?' }).then(({ error }) => ({
      tookMs: performance.now() - startedAt,
      data: (error as { data: Json }).data,
    }))
    let calls = 0
    let isOver = false
    void frozen.finally(() => (isOver = true))
    while (!isOver) {
      assert.equal(await client.say('other__echo', { text: 'yes' }), 'yes')
      calls++
    }
    const { tookMs, data } = await frozen
    process.kill(pid, 'SIGCONT')
    assert.equal(data.code, 'BW_ATTEMPT_TIMEOUT')
    assert.deepEqual([data.sent, data.retryable], [true, false])
    assert.ok(tookMs >= TIMEOUT_MS - 50 && tookMs < TIMEOUT_MS + 5_000, `took ${tookMs} ms`)
    assert.ok(calls > 5, `only ${calls} calls of another server went through meanwhile`)
    assert.equal(await client.say(`${server}__echo`, { text: 'thawed' }), 'thawed')
  })
}

test('a new session with a frozen server is refused at the timeout of its handshake', async () => {
  const { program, data } = await Gateway.start({
    servers: { remote: { url: remote.url, timeouts: { discovery: '1s' } } },
  })
  remote.program.signal('SIGSTOP')
  const client = await RawClient.open(`${data}/mcp/remote`)
  remote.program.signal('SIGCONT')
  const error = client.welcome.error as { data: Json }
  assert.equal(error.data.code, 'BW_ATTEMPT_TIMEOUT')
  assert.equal(client.session, '')
  await program.kill()
})
