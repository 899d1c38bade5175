import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Client } from '@modelcontextprotocol/sdk/client/index.js'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  UrlElicitationRequiredError,
} from '@modelcontextprotocol/sdk/types.js'
import { routes, startEverything } from './support/everything.ts'
import { cleanUp, type Gateway } from './support/gateway.ts'
import { closeClients, connect, textOf } from './support/sdk-client.ts'

const capabilities = { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } }

let gateway: Gateway

before(async () => {
  gateway = await startEverything()
})
after(async () => {
  await closeClients()
  await cleanUp()
})

/** Answers all that a server may ask; `modes` are those of the elicitations. */
function answering(modes: string[]): (client: Client) => void {
  return (client) => {
    client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => ({
      model: 'test-model',
      role: 'assistant',
      content: { type: 'text', text: `sampled with ${params.maxTokens} tokens` },
    }))
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      modes.push(params.mode ?? 'form')
      return params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: { name: 'Ada' } }
    })
    client.setRequestHandler(ListRootsRequestSchema, () => ({
      roots: [{ uri: 'file:///harbour', name: 'Harbour' }],
    }))
  }
}

for (const { title, kind, url, name } of routes) {
  test(`${title}: sampling and both kinds of elicitation reach the client, and its answers the server`, async () => {
    const modes: string[] = []
    const client = await connect(url(gateway), capabilities, answering(modes))
    const call = async (tool: string, args: Record<string, unknown>) =>
      textOf(await client.callTool({ name: name(tool), arguments: args }))
    assert.match(
      await call('trigger-sampling-request', { prompt: 'hi', maxTokens: 17 }),
      /sampled with 17 tokens/,
    )
    assert.match(await call('trigger-elicitation-request', {}), /User provided the requested information/)
    assert.match(await call('trigger-url-elicitation', { url: 'https://example.com/' }), /User completed/)
    assert.deepEqual(modes, ['form', 'url'])
  })

  test(`${title}: an error that asks for a URL to be opened passes with its details`, async () => {
    const client = await connect(url(gateway), capabilities, answering([]))
    const args = { url: `https://example.com/${title.length}`, errorPath: true, elicitationId: title }
    const failed = await client
      .callTool({ name: name('trigger-url-elicitation'), arguments: args })
      .catch((error: unknown) => error)
    assert.ok(failed instanceof UrlElicitationRequiredError, String(failed))
    assert.equal(failed.elicitations[0]?.url, 'https://modelcontextprotocol.io')
  })

  if (kind === 'shared') continue

  test(`${title}: the client's roots are its own`, async () => {
    const client = await connect(url(gateway), capabilities, answering([]))
    // The server asks outside of the call, and the client does not wait until it listens.
    await gateway.waitForListeners()
    const roots = await client.callTool({ name: name('get-roots-list'), arguments: {} })
    assert.match(textOf(roots), /Harbour\s+URI: file:\/\/\/harbour/)
  })
}
