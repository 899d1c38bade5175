import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { mcpServer, docs } from './tools.ts'

// A separate program, run by the demo's gateway. Ends with its standard input.

await mcpServer('docs', docs).connect(new StdioServerTransport())
