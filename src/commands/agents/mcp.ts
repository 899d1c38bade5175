import { once } from 'node:events'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { Server } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import type { Env } from '../../config/files/interpolate.ts'
import { implementation } from '../../protocol/identity.ts'
import { optionLines, type Output, runCommand, UnusableInput } from '../shared/arguments.ts'
import { untilSignal } from '../shared/signals.ts'

const DEFAULT_URL = 'http://127.0.0.1:8082/mcp'

const options = {
  url: {
    kind: 'url',
    value: 'URL',
    default: DEFAULT_URL,
    about: 'the control MCP server of a running gateway',
  },
} as const

const usage = `breakwater mcp [--url URL]

  Serves the control MCP server of a running gateway on standard input and output, for clients that only start programs.
  BREAKWATER_MCP_TOKEN holds the agent's token, whose SHA-256 is in gateway.controlMcp.tokens.

${optionLines(options)}`

/** `breakwater mcp`: runs until standard input ends. */
export function mcp(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options, positionals: [] }, out, async ({ url = DEFAULT_URL }) => {
    const token = env.BREAKWATER_MCP_TOKEN
    if (token === undefined || token === '')
      throw new UnusableInput('BREAKWATER_MCP_TOKEN is not set: it holds the token of the agent')
    const client = new Client(
      { ...implementation, name: 'breakwater-mcp' },
      { versionNegotiation: { mode: 'auto' } },
    )
    const requestInit = { headers: { authorization: `Bearer ${token}` } }
    await client
      .connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }))
      .catch((error: Error) => {
        throw new UnusableInput(`${url} cannot be used: ${error.message}`)
      })
    const handle = serveStdio(() => bridge(client), {
      onerror: (error) => out.stderr(`breakwater: ${error.message}`),
    })
    await Promise.race([untilSignal(), once(process.stdin, 'close')])
    await handle.close()
    await client.close()
    return 0
  })
}

/** Returns a server that hands each request to the gateway. */
function bridge(client: Client): Server {
  const server = new Server(
    { ...implementation, name: 'breakwater-control' },
    { capabilities: { tools: {}, prompts: {} } },
  )
  server.setRequestHandler('tools/list', () => client.listTools())
  server.setRequestHandler('prompts/list', () => client.listPrompts())
  server.setRequestHandler('prompts/get', ({ params }) => client.getPrompt(params))
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
