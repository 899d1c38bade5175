import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { mcpServer, docs } from './tools.ts'

// This program is a stdio server, run by the gateway of the demo. It ends when its standard input ends.

await mcpServer('docs', docs).connect(new StdioServerTransport())
