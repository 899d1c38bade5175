import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { connect } from './support/agents.ts'
import { type Extras, routes, startExtras } from './support/extras.ts'
import { postModern } from './support/modern-poster.ts'
import { v2Auto, v2Pinned } from './support/v2-agent.ts'

let extras: Extras
/**
 * The sessions in which the gateway looks after the server: a probe may come there at any time, and is for the sake of no call. More
 * than one where the handshake took so long that another was begun beside it.
 */
let ofGateway: ReadonlySet<string | undefined>

before(async () => {
  extras = await startExtras()
  ofGateway = new Set(extras.legacy.requests.flatMap(({ session }) => session ?? []))
  assert.ok(ofGateway.size > 0, 'the gateway has a session before there are clients')
})
after(() => extras.close())

/** The requests that reach the legacy server for the sake of clients while `act` runs, but for the end of a session that nobody needs. */
async function requestsDuring(act: () => Promise<unknown>): Promise<readonly string[]> {
  const before = extras.legacy.requests.length
  await act()
  return extras.legacy.requests
    .slice(before)
    .filter(({ method, session }) => method !== 'DELETE' && !ofGateway.has(session))
    .map(({ method }) => method)
}

for (const { title, url, name } of routes) {
  for (const kind of [v2Auto, v2Pinned]) {
    test(`${title}: each call of a ${kind.title} client after the first is one request to a legacy server`, async () => {
      const agent = await connect(kind, url(extras.gateway, 'legacy'))
      const call = () => agent.call(name('legacy', 'echo'))
      await call()
      for (let again = 0; again < 3; again++) assert.deepEqual(await requestsDuring(call), ['POST'])
    })
  }

  test(`${title}: clients that say the same of themselves share a conversation with a legacy server`, async () => {
    const call = { name: name('legacy', 'echo'), arguments: {} }
    const send = () => postModern(url(extras.gateway, 'legacy'), 'tools/call', call)
    await send()
    const calls = () => Promise.all([send(), send(), send(), send(), send()])
    assert.deepEqual(
      await requestsDuring(calls),
      Array.from({ length: 5 }, () => 'POST'),
    )
  })
}
