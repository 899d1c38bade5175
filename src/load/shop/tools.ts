import { z } from 'zod'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'

/** A tool of the demo's servers. Its answer depends only on its arguments, so agents can recognize a wrong answer. */
export interface DemoTool {
  readonly about: string
  readonly isWrite: boolean
  readonly input: z.ZodRawShape
  readonly output: z.ZodRawShape
  readonly answer: (args: Args) => Record<string, unknown>
}

export type Args = Readonly<Record<string, unknown>>

const PRICE = 19

/** The tools of the stdio server. */
export const docs: Readonly<Record<string, DemoTool>> = {
  search_docs: {
    about: 'Finds documents.',
    isWrite: false,
    input: { query: z.string() },
    output: { query: z.string(), ids: z.array(z.string()) },
    answer: ({ query }) => ({ query, ids: [1, 2, 3].map((rank) => `${String(query)}-${rank}`) }),
  },
  read_doc: {
    about: 'Reads a document.',
    isWrite: false,
    input: { id: z.string() },
    output: { id: z.string(), text: z.string() },
    answer: ({ id }) => ({ id, text: `All that there is to know of ${String(id)}.` }),
  },
}

/** The tools of the HTTP server. */
export const orders: Readonly<Record<string, DemoTool>> = {
  check_stock: {
    about: 'Says how many of an item are left.',
    isWrite: false,
    input: { item: z.string() },
    output: { item: z.string(), inStock: z.number() },
    answer: ({ item }) => ({ item, inStock: 100 + String(item).length }),
  },
  quote_price: {
    about: 'Says what items cost together.',
    isWrite: false,
    input: { item: z.string(), quantity: z.number() },
    output: { item: z.string(), quantity: z.number(), total: z.number() },
    answer: ({ item, quantity }) => ({ item, quantity, total: PRICE * Number(quantity) }),
  },
  place_order: {
    about: 'Orders items.',
    isWrite: true,
    input: { ref: z.string(), item: z.string(), quantity: z.number() },
    output: { ref: z.string(), status: z.string() },
    answer: ({ ref }) => ({ ref, status: 'placed' }),
  },
}

/** Returns an MCP server with these tools. `onRun` is called for each tool call before the answer. */
export function mcpServer(
  name: string,
  tools: Readonly<Record<string, DemoTool>>,
  onRun: (tool: string, args: Args) => void = () => undefined,
): McpServer {
  const server = new McpServer({ name, version: '1.0.0' })
  for (const [tool, { about, isWrite, input, output, answer }] of Object.entries(tools)) {
    const annotations = { readOnlyHint: !isWrite }
    const definition = { description: about, inputSchema: input, outputSchema: output, annotations }
    server.registerTool(tool, definition, (args: Args) => {
      onRun(tool, args)
      const structuredContent = answer(args)
      return { content: [{ type: 'text', text: JSON.stringify(structuredContent) }], structuredContent }
    })
  }
  return server
}
