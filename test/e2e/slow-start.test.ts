import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { cleanUp, Gateway, newFolder } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

// In a file of its own, so that nobody waits for its minute.

after(cleanUp)

const fixture = fileURLToPath(new URL('../fixtures/starting-server.js', import.meta.url))

test('a server that speaks after a minute comes up at its first start', { timeout: 170_000 }, async () => {
  const file = join(await newFolder(), 'starts')
  const total = '150s'
  const gateway = await Gateway.start({
    servers: { it: { command: process.execPath, args: [fixture, 'slow', '60000', file] } },
    policies: { defaults: { deadline: { total }, attemptTimeout: { timeout: total } } },
  })
  const client = await RawClient.open(gateway.mcp())
  assert.equal(await client.say('it__hello'), 'hello')
  assert.equal((await readFile(file, 'utf8')).split('\n').length - 1, 1)
})
