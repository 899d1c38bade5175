import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Client } from '@modelcontextprotocol/sdk/client/index.js'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  UrlElicitationRequiredError,
} from '@modelcontextprotocol/sdk/types.js'
import { until } from '../support/until.ts'
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

/** Answers every question of a server; `modes` collects the modes of elicitations. */
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

for (const { title, kind, url, name, uri } of routes) {
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

  test(`${title}: log messages come at the level that was asked for`, async () => {
    const levels: string[] = []
    const client = await connect(url(gateway), {}, (one) => {
      one.setNotificationHandler(
        LoggingMessageNotificationSchema,
        ({ params }) => void levels.push(params.level),
      )
    })
    await client.setLoggingLevel('debug')
    const toggle = { name: name('toggle-simulated-logging'), arguments: {} }
    await client.callTool(toggle)
    await until('a message of the log comes', () => levels.length > 0)
    await client.callTool(toggle)
  })

  test(`${title}: tools that need something of the client are listed too`, async () => {
    const client = await connect(url(gateway), capabilities)
    const { tools } = await client.listTools()
    const own = tools.map((tool) => tool.name)
    const needy = ['trigger-sampling-request', 'trigger-elicitation-request', 'trigger-url-elicitation']
    // A shared process cannot know whose roots it gets.
    if (kind !== 'shared') needy.push('get-roots-list')
    for (const tool of needy) assert.ok(own.includes(name(tool)), `${tool} is not in ${own.join()}`)
  })

  test(`${title}: prompts are listed, got and completed`, async () => {
    const client = await connect(url(gateway))
    const { prompts } = await client.listPrompts()
    assert.ok(prompts.some((prompt) => prompt.name === name('completable-prompt')))
    const { messages } = await client.getPrompt({
      name: name('resource-prompt'),
      arguments: { resourceType: 'Text', resourceId: '1' },
    })
    const embedded = messages.flatMap(({ content }) =>
      content.type === 'resource' ? [content.resource.uri] : [],
    )
    assert.deepEqual(embedded, [uri('demo://resource/dynamic/text/1')])
    const { completion } = await client.complete({
      ref: { type: 'ref/prompt', name: name('completable-prompt') },
      argument: { name: 'department', value: 'E' },
    })
    assert.deepEqual(completion.values, ['Engineering'])
  })

  test(`${title}: resources are listed, read, linked and completed`, async () => {
    const client = await connect(url(gateway))
    const { resources } = await client.listResources()
    const [first] = resources.filter((resource) => resource.uri.startsWith(uri('demo://')))
    assert.ok(first)
    const { contents } = await client.readResource({ uri: first.uri })
    assert.equal(contents[0]?.uri, first.uri)

    const { resourceTemplates } = await client.listResourceTemplates()
    const template = uri('demo://resource/dynamic/text/{resourceId}')
    assert.ok(resourceTemplates.some(({ uriTemplate }) => uriTemplate === template))
    const made = template.replace('{resourceId}', '7')
    assert.equal((await client.readResource({ uri: made })).contents[0]?.uri, made)
    const { completion } = await client.complete({
      ref: { type: 'ref/resource', uri: template },
      argument: { name: 'resourceId', value: '7' },
    })
    assert.deepEqual(completion.values, ['7'])

    const links = await client.callTool({
      name: name('get-resource-links'),
      arguments: { count: 1 },
    })
    const [link] = (links.content as { type: string; uri: string }[]).filter(
      ({ type }) => type === 'resource_link',
    )
    assert.ok(link !== undefined && link.uri.startsWith(uri('demo://')), link?.uri)
    assert.equal((await client.readResource({ uri: link.uri })).contents[0]?.uri, link.uri)
  })

  if (kind === 'shared') continue

  test(`${title}: the client's roots are its own`, async () => {
    const client = await connect(url(gateway), capabilities, answering([]))
    // The server asks outside the call, and the client does not wait for its stream to open.
    await gateway.waitForListeners()
    const roots = await client.callTool({ name: name('get-roots-list'), arguments: {} })
    assert.match(textOf(roots), /Harbour\s+URI: file:\/\/\/harbour/)
  })
}
