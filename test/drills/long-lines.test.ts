import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { bystand } from '../e2e/support/bystander.ts'
import { cleanUp, Gateway } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { stdioToolbox } from '../e2e/support/toolbox.ts'

const MIB = 1024 ** 2

/** Concurrent calls, each in its own session. */
const AT_ONCE = 8

after(cleanUp)

test('lines of 1 MB pass to a process and back, each to the session that sent it, and others are served', async (t) => {
  const gateway = await Gateway.start({ servers: { shared: stdioToolbox(), quiet: stdioToolbox() } })
  await gateway.waitFor('up', 'shared', 'quiet')
  const bystander = await RawClient.open(gateway.mcp('quiet'))
  const clients = await Promise.all(
    Array.from({ length: AT_ONCE }, () => RawClient.open(gateway.mcp('shared'))),
  )
  const seen = await bystand(
    gateway,
    async () => assert.equal(await bystander.say('echo', { text: 'here' }), 'here'),
    async () => {
      for (let round = 0; round < 3; round++)
        await Promise.all(
          clients.map(async (client, index) => {
            // Multi-byte characters, so a character lies across every border of chunks.
            const text = `${index}.${round}:${'€'.repeat(MIB / 3)}`
            assert.ok((await client.say('echo', { text })) === text, `call ${index}.${round}`)
          }),
        )
    },
  )
  t.diagnostic(seen)
  assert.ok(gateway.program.isRunning)
})
