import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { Args, DemoTool } from './tools.ts'

/** An MCP server of these tools. `onRun` hears of each call that runs, before it is answered. */
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
