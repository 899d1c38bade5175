import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { connect } from './support/agents.ts'
import { type Extras, routes, startExtras } from './support/extras.ts'
import { postModern } from './support/modern-poster.ts'
import { v2Auto, v2Pinned } from './support/v2-agent.ts'

let extras: Extras
/**
 * Sessions of the gateway's own health checks: a probe may come there at any time, for no call. There are several when
 * a handshake took so long that another one began.
 */
let ofGateway: ReadonlySet<string | undefined>

before(async () => {
  extras = await startExtras()
  ofGateway = new Set(extras.legacy.requests.flatMap(({ session }) => session ?? []))
  assert.ok(ofGateway.size > 0, 'the gateway has a session before there are clients')
})
after(() => extras.close())

/** Returns the requests clients cause at the legacy server while `act` runs, except DELETEs of unused sessions. */
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
