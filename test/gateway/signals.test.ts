import assert from 'node:assert/strict'
import { readdir, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { after, test } from 'node:test'
import { cleanUp, configText, Gateway } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers } from '../e2e/support/raw-server.ts'
import { until } from '../support/until.ts'
import { heldServer } from './held-server.ts'

after(async () => {
  await cleanUp()
  closeServers()
})

/** A gateway in its own process, with a call under way. */
async function duringCall() {
  const server = await heldServer('held')
  const parts = { servers: { held: { url: server.url } }, gateway: { drain: '10m' } }
  const gateway = await Gateway.start(parts)
  await gateway.waitFor('up', 'held')
  const client = await RawClient.open(gateway.mcp('held'))
  const underWay = client.call('hold').catch((error: unknown) => error)
  await server.holds(1)
  const says = (text: string) =>
    until(`the log says "${text}"`, () => gateway.log.some(({ msg }) => String(msg).startsWith(text)))
  return { gateway, parts, server, underWay, says }
}

for (const signal of ['SIGTERM', 'SIGINT'] as const)
  test(`${signal} ends a gateway once its last call has ended, with exit code 0 and without its token`, async () => {
    const { gateway, server, underWay, says } = await duringCall()
    gateway.program.signal(signal)
    await says('stopping')
    server.answer()
    assert.match(JSON.stringify(await underWay), /"held"/)
    assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
    const left = await readdir(dirname(gateway.file), { recursive: true })
    assert.deepEqual(
      left.filter((name) => name.endsWith('.token')),
      [],
    )
  })

for (const [first, second] of [
  ['SIGTERM', 'SIGINT'],
  ['SIGINT', 'SIGTERM'],
  ['SIGINT', 'SIGINT'],
] as const)
  test(`${second} after ${first} ends a gateway at once, whatever is under way`, async () => {
    const { gateway, underWay, says } = await duringCall()
    gateway.program.signal(first)
    await says('stopping')
    gateway.program.signal(second)
    assert.deepEqual(await gateway.program.ended, { code: 1, signal: null })
    assert.ok((await underWay) instanceof Error)
  })

test('SIGHUP reads the config and ends nothing, neither before SIGTERM nor after it', async () => {
  const { gateway, parts, server, underWay, says } = await duringCall()
  gateway.program.signal('SIGHUP')
  await says('config reloaded')
  gateway.program.signal('SIGTERM')
  await says('stopping')
  await writeFile(gateway.file, configText({ ...parts, policies: { defaults: { retry: false } } }))
  gateway.program.signal('SIGHUP')
  await until(
    'the config is read a second time',
    () => gateway.log.filter(({ trigger }) => trigger === 'SIGHUP').length === 2,
  )
  server.answer()
  assert.match(JSON.stringify(await underWay), /"held"/)
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
})
