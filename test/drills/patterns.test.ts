import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { bystand } from '../e2e/support/bystander.ts'
import { cleanUp, Gateway } from '../e2e/support/gateway.ts'
import { closeServers, RawServer, sendJson } from '../e2e/support/raw-server.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { stdioToolbox } from '../e2e/support/toolbox.ts'

/** Patterns with catastrophic backtracking, each with a trigger text. */
const patterns: Readonly<Record<string, readonly [pattern: string, text: string]>> = {
  nested: ['^(a+)+$', `${'a'.repeat(40)}!`],
  alternatives: ['^(a|a)*$', `${'a'.repeat(40)}!`],
  references: ['^(.*)(.*)(.*)\\1\\2\\3x$', 'ab'.repeat(400)],
  polynomial: ['^.*a.*a.*a.*a.*a.*b$', 'a'.repeat(5_000)],
  lookahead: ['^(?=(a+)+$)', `${'a'.repeat(40)}!`],
  empty: [`^${'(|)'.repeat(40)}(?!)`, 'a'],
  unanchored: ['(x+x+)+y', 'x'.repeat(60)],
  classes: ['^([a-z]+[a-z0-9]*)*$', `${'a'.repeat(40)}!`],
}

/** Places of a pattern in a schema. */
const places = {
  string: (pattern: string) => ({ type: 'object', properties: { text: { type: 'string', pattern } } }),
  name: (pattern: string) => ({ type: 'object', patternProperties: { [pattern]: { type: 'string' } } }),
}

after(async () => {
  await cleanUp()
  closeServers()
})

test("a hostile server's slow patterns stall nobody, in arguments or in results", async (t) => {
  const tools = Object.entries(patterns).flatMap(([name, [pattern]]) =>
    Object.entries(places).map(([place, schemaOf]) => ({
      name: `${name}_${place}`,
      inputSchema: schemaOf(pattern),
      outputSchema: schemaOf(pattern),
    })),
  )
  const server = await RawServer.start(({ message: { id, method, params } }, response) => {
    if (method === 'tools/list')
      return sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result: { tools } }))
    if (method !== 'tools/call') return false
    const structuredContent = (params as { arguments: object }).arguments
    sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result: { content: [], structuredContent } }))
  })
  const gateway = await Gateway.start({
    servers: { hostile: { url: server.url }, quiet: stdioToolbox() },
    policies: { defaults: { arguments: { check: 'enforce' }, verdict: { output: 'enforce' } } },
  })
  await gateway.waitFor('up', 'hostile', 'quiet')
  const [agent, bystander] = [
    await RawClient.open(gateway.mcp('hostile')),
    await RawClient.open(gateway.mcp('quiet')),
  ]
  const seen = await bystand(
    gateway,
    async () => assert.equal(await bystander.say('echo', { text: 'here' }), 'here'),
    async () => {
      for (const [name, [, text]] of Object.entries(patterns)) {
        // The first call triggers the compilation, beside the calls.
        for (let round = 0; round < 3; round++) {
          await agent.call(`${name}_string`, { text })
          await agent.call(`${name}_name`, { [text]: text })
        }
      }
    },
  )
  t.diagnostic(seen)
  assert.ok(gateway.program.isRunning)
})
