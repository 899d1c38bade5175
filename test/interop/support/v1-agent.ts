import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'
import {
  type Agent,
  type AgentKind,
  type Answers,
  capabilitiesOf,
  firstText,
  type ListedTool,
  type Told,
} from './agent.ts'

/** The first generation of the SDK: legacy era only. */
export const v1: AgentKind = { title: 'v1', era: 'legacy', version: '2025-11-25', connect }

async function connect(url: string, answers: Answers = {}): Promise<Agent> {
  const client = new Client(
    { name: 'interop-v1', version: '1.0.0' },
    { capabilities: capabilitiesOf(answers) },
  )
  const told: Told[] = []
  answer(client, answers)
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => void told.push('tools'))
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
    told.push(`resource ${params.uri}`)
  })
  const transport = new StreamableHTTPClientTransport(new URL(url))
  await client.connect(transport)
  return {
    version: transport.protocolVersion,
    told,
    async tools() {
      const all: ListedTool[] = []
      // This SDK leaves paging to its caller; an empty cursor still means another page.
      for (let cursor: string | undefined, first = true; first || cursor !== undefined; first = false) {
        const { tools, nextCursor } = await client.listTools(cursor === undefined ? {} : { cursor })
        all.push(...tools.map(({ name, outputSchema }) => ({ name, outputSchema })))
        cursor = nextCursor
      }
      return all
    },
    async call(name, args = {}, { onprogress, signal } = {}) {
      const options = {
        ...(onprogress === undefined
          ? {}
          : { onprogress: ({ progress }: { progress: number }) => onprogress(progress) }),
        ...(signal === undefined ? {} : { signal }),
      }
      const { content, structuredContent } = await client.callTool(
        { name, arguments: args },
        undefined,
        options,
      )
      return { text: firstText(content), structured: structuredContent }
    },
    prompts: async () => (await client.listPrompts()).prompts.map(({ name }) => name),
    prompt: async (name) =>
      firstText((await client.getPrompt({ name })).messages.map(({ content }) => content)),
    resources: async () => (await client.listResources()).resources.map(({ uri }) => uri),
    read: async (uri) => firstText((await client.readResource({ uri })).contents),
    async watch(uris) {
      for (const uri of uris) await client.subscribeResource({ uri })
      return async () => {
        for (const uri of uris) await client.unsubscribeResource({ uri })
      }
    },
    close: () => client.close(),
  }
}

function answer(client: Client, { form, model, roots }: Answers): void {
  if (form !== undefined) {
    client.setRequestHandler(ElicitRequestSchema, ({ params }) =>
      params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: form },
    )
  }
  if (model !== undefined) {
    client.setRequestHandler(CreateMessageRequestSchema, () => ({
      model: 'test',
      role: 'assistant',
      content: { type: 'text', text: model },
    }))
  }
  if (roots !== undefined) {
    client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: roots.map((uri) => ({ uri })) }))
  }
}
