import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { mcpServer, docs } from './tools.ts'

// A program of its own, which the gateway of the demo runs. It ends with its standard input.

await mcpServer('docs', docs).connect(new StdioServerTransport())
