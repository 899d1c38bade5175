import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { routes, startEverything } from './support/everything.ts'
import { cleanUp, type Gateway } from './support/gateway.ts'
import { closeClients, connect, textOf } from './support/sdk-client.ts'

const capabilities = { sampling: {}, elicitation: { form: {}, url: {} }, roots: {} }

let gateway: Gateway

before(async () => {
  gateway = await startEverything()
})
after(async () => {
  await closeClients()
  await cleanUp()
})

for (const { title, kind, url, name, uri } of routes) {
  test(`${title}: tools are listed and called`, async () => {
    const client = await connect(url(gateway), capabilities)
    const { tools } = await client.listTools()
    const own = tools.map((tool) => tool.name)
    for (const tool of ['echo', 'get-sum', 'get-structured-content', 'trigger-long-running-operation'])
      assert.ok(own.includes(name(tool)), `${tool} is not in ${own.join()}`)
    const echoed = await client.callTool({ name: name('echo'), arguments: { message: 'höi 🌊' } })
    assert.equal(textOf(echoed), 'Echo: höi 🌊')
    const sum = await client.callTool({ name: name('get-sum'), arguments: { a: 2, b: 40 } })
    assert.match(textOf(sum), /42/)
    const { structuredContent } = await client.callTool({
      name: name('get-structured-content'),
      arguments: { location: 'Chicago' },
    })
    assert.equal(typeof (structuredContent as { temperature: unknown }).temperature, 'number')
    const { content } = await client.callTool({ name: name('get-tiny-image'), arguments: {} })
    assert.ok((content as { type: string }[]).some(({ type }) => type === 'image'))
  })

  test(`${title}: tools that need something of the client are listed too`, async () => {
    const client = await connect(url(gateway), capabilities)
    const { tools } = await client.listTools()
    const own = tools.map((tool) => tool.name)
    const needy = ['trigger-sampling-request', 'trigger-elicitation-request', 'trigger-url-elicitation']
    // A process that callers share cannot know whose roots it would be told.
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
}
