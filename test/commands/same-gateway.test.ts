import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import type { Control } from '../../src/commands/shared/control.ts'
import { otherGateway } from '../../src/commands/same-gateway.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'

test('with more sessions than the gateway lists, the newest session identifies the data port', async (t) => {
  const server = createServer((_, response) => response.setHeader('mcp-session-id', 'abcdefgh-ij').end())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const data = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const listed = Array.from({ length: 1_000 }, (_, n) => ({ id: `${n}…` }))
  const knows = (sessions: object[]): Control => {
    return () => Promise.resolve({ ok: true, value: { open: 1_500, sessions } })
  }
  assert.match(
    (await otherGateway(knows(listed), data, new Cancellation())) ?? '',
    /is the data port of another gateway/,
  )
  const own = [...listed.slice(1), { id: 'abcdefgh…' }]
  assert.equal(await otherGateway(knows(own), data, new Cancellation()), undefined)
})
