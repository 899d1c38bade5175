import { once } from 'node:events'
import type { Client } from '@modelcontextprotocol/client'
import { Server } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import type { Env } from '../../config/files/interpolate.ts'
import { listParams, promptParams } from '../../control/mcp/params.ts'
import { implementation } from '../../protocol/identity.ts'
import { optionLines, type Output, runCommand } from '../shared/arguments.ts'
import { untilSignal } from '../shared/signals.ts'
import { CONTROL_SERVER, controlMcpAt, controlMcpUrl } from './control-client.ts'

const options = { url: controlMcpUrl } as const

/** Longest text about a broken message, in characters. */
const LONGEST_ERROR = 300

const usage = `breakwater mcp [--url URL]

  Serves the control MCP server of a running gateway on standard input and output, for clients that only start programs.
  BREAKWATER_MCP_TOKEN holds the agent's token, whose SHA-256 is in gateway.controlMcp.tokens.

${optionLines(options)}`

/** `breakwater mcp`: runs until standard input ends. */
export function mcp(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options, positionals: [] }, out, async ({ url }) => {
    const client = await controlMcpAt(url, env)
    const handle = serveStdio(() => bridge(client), {
      onerror: ({ message }) =>
        out.stderr(`breakwater: ${message.replace(/\s+/g, ' ').slice(0, LONGEST_ERROR)}`),
    })
    await Promise.race([untilSignal(), once(process.stdin, 'close')])
    await handle.close()
    await client.close()
    return 0
  })
}

/** Returns a server that hands each request to the gateway. */
function bridge(client: Client): Server {
  const instructions = client.getInstructions()
  const server = new Server(
    { ...implementation, name: CONTROL_SERVER },
    { capabilities: { tools: {}, prompts: {} }, ...(instructions !== undefined && { instructions }) },
  )
  server.setRequestHandler('tools/list', { params: listParams }, () => client.listTools())
  server.setRequestHandler('prompts/list', { params: listParams }, () => client.listPrompts())
  server.setRequestHandler('prompts/get', { params: promptParams }, (params) => client.getPrompt(params))
  server.setRequestHandler('tools/call', ({ params }, { mcpReq }) => {
    const token = params._meta?.progressToken ?? mcpReq._meta?.progressToken
    return client.callTool(
      { name: params.name, arguments: params.arguments ?? {} },
      {
        signal: mcpReq.signal,
        ...(token !== undefined && {
          onprogress: (progress) =>
            void mcpReq.notify({
              method: 'notifications/progress',
              params: { progressToken: token, ...progress },
            }),
        }),
      },
    )
  })
  return server
}
