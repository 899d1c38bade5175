import {
  Client,
  StreamableHTTPClientTransport,
  type VersionNegotiationMode,
} from '@modelcontextprotocol/client'
import { type Agent, type AgentKind, type Answers, capabilitiesOf, firstText, type Told } from './agent.ts'

/** The second generation of the SDK with its defaults: sends `initialize`. */
export const v2Legacy = kind('v2 legacy', 'legacy', 'legacy')

/** The second generation of the SDK, which detects the era of its peer. */
export const v2Auto = kind('v2 auto', 'modern', 'auto')

/** The second generation of the SDK, pinned to the modern era. */
export const v2Pinned = kind('v2 pinned', 'modern', { pin: '2026-07-28' })

function kind(title: string, era: AgentKind['era'], mode: VersionNegotiationMode): AgentKind {
  const version = era === 'modern' ? '2026-07-28' : '2025-11-25'
  return { title, era, version, connect: (url, answers = {}) => connect(url, mode, answers) }
}

async function connect(url: string, mode: VersionNegotiationMode, answers: Answers): Promise<Agent> {
  const client = new Client(
    { name: 'interop-v2', version: '1.0.0' },
    { capabilities: capabilitiesOf(answers), versionNegotiation: { mode } },
  )
  const told: Told[] = []
  answer(client, answers)
  client.setNotificationHandler('notifications/tools/list_changed', () => void told.push('tools'))
  client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
    told.push(`resource ${params.uri}`)
  })
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  const fresh = { cacheMode: 'bypass' } as const
  return {
    version: client.getNegotiatedProtocolVersion(),
    told,
    async tools() {
      const { tools } = await client.listTools(undefined, fresh)
      return tools.map(({ name, outputSchema }) => ({ name, outputSchema }))
    },
    async call(name, args = {}, { onprogress, signal } = {}) {
      const { content, structuredContent } = await client.callTool(
        { name, arguments: { ...args } },
        {
          ...(onprogress === undefined ? {} : { onprogress: ({ progress }) => onprogress(progress) }),
          ...(signal === undefined ? {} : { signal }),
        },
      )
      return { text: firstText(content), structured: structuredContent }
    },
    prompts: async () => (await client.listPrompts(undefined, fresh)).prompts.map(({ name }) => name),
    prompt: async (name) =>
      firstText((await client.getPrompt({ name })).messages.map(({ content }) => content)),
    resources: async () => (await client.listResources(undefined, fresh)).resources.map(({ uri }) => uri),
    read: async (uri) => firstText((await client.readResource({ uri }, fresh)).contents),
    async watch(uris) {
      if (client.getProtocolEra() === 'modern') {
        const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [...uris] })
        return () => subscription.close()
      }
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
    client.setRequestHandler('elicitation/create', ({ params }) =>
      params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: { ...form } },
    )
  }
  if (model !== undefined) {
    client.setRequestHandler('sampling/createMessage', () => ({
      model: 'test',
      role: 'assistant',
      content: { type: 'text', text: model },
    }))
  }
  if (roots !== undefined) {
    client.setRequestHandler('roots/list', () => ({ roots: roots.map((uri) => ({ uri })) }))
  }
}
