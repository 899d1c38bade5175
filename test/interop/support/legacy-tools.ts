import type { RequestHandlerExtra } from '@modelcontextprotocol/sdk/shared/protocol.js'
import {
  CreateMessageResultSchema,
  ElicitResultSchema,
  ListRootsResultSchema,
  type ServerNotification,
  type ServerRequest,
  type Tool,
} from '@modelcontextprotocol/sdk/types.js'
import type { Facts } from './legacy-extras.ts'

type Extra = RequestHandlerExtra<ServerRequest, ServerNotification>

interface LegacyTool {
  readonly definition: Omit<Tool, 'name'>
  /** Returns a value; its JSON becomes the text of the result, and the structured content if there is a schema. */
  run(args: Readonly<Record<string, unknown>>, extra: Extra, facts: Facts): unknown
}

const plain = { inputSchema: { type: 'object' as const } }

const question = {
  method: 'sampling/createMessage' as const,
  params: {
    messages: [{ role: 'user' as const, content: { type: 'text' as const, text: 'Capital?' } }],
    maxTokens: 10,
  },
}

const requestedSchema = { type: 'object' as const, properties: { name: { type: 'string' as const } } }

const ask = {
  form: ({ sendRequest }: Extra, message: string) =>
    sendRequest({ method: 'elicitation/create', params: { message, requestedSchema } }, ElicitResultSchema),
  model: ({ sendRequest }: Extra) => sendRequest(question, CreateMessageResultSchema),
  roots: ({ sendRequest }: Extra) => sendRequest({ method: 'roots/list' }, ListRootsResultSchema),
}

export const tools: Readonly<Record<string, LegacyTool>> = {
  echo: { definition: plain, run: (args) => args },

  object: {
    definition: {
      ...plain,
      outputSchema: { type: 'object', properties: { depth: { type: 'number' } }, required: ['depth'] },
    },
    run: () => ({ depth: 4.5 }),
  },

  /** Reports progress once, and ends only when cancelled. */
  wait: {
    definition: plain,
    async run(_, { _meta, sendNotification, signal }, facts) {
      const { progressToken } = _meta ?? {}
      if (progressToken !== undefined) {
        await sendNotification({ method: 'notifications/progress', params: { progressToken, progress: 1 } })
      }
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      facts.cancelled++
    },
  },

  cancelled: { definition: plain, run: (_, __, facts) => facts.cancelled },

  touch: {
    definition: plain,
    async run({ uri }, _, { conversations }) {
      for (const [server, uris] of conversations) {
        if (uris.has(String(uri))) await server.sendResourceUpdated({ uri: String(uri) })
      }
      return 'touched'
    },
  },

  /** Adds or removes the tool `sometimes`. */
  change_tools: {
    definition: plain,
    async run(_, __, facts) {
      facts.sometimes = !facts.sometimes
      for (const server of facts.conversations.keys()) await server.sendToolListChanged()
      return facts.sometimes
    },
  },

  sometimes: { definition: plain, run: () => 'here' },

  /** Asks the user, then the client's model and its roots at the same time, then the user again. */
  survey: {
    definition: plain,
    async run(_, extra) {
      const first = await ask.form(extra, 'Who are you?')
      const [model, roots] = await Promise.all([ask.model(extra), ask.roots(extra)])
      const last = await ask.form(extra, 'Really?')
      return [first.content, model.content, roots.roots, last.action]
    },
  },

  /** Asks the user without naming the call. */
  aside: {
    definition: plain,
    async run(_, { sessionId }, { conversations }) {
      const server = [...conversations.keys()].find((one) => one.transport?.sessionId === sessionId)
      const { content } = (await server?.elicitInput({ message: 'Who are you?', requestedSchema })) ?? {}
      return content
    },
  },
}
