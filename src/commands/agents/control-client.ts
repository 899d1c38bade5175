import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import type { Env } from '../../config/files/interpolate.ts'
import { implementation } from '../../protocol/identity.ts'
import { UnusableInput } from '../shared/arguments.ts'

/** The name of the control MCP server, and of `breakwater mcp` towards clients. */
export const CONTROL_SERVER = 'breakwater-control'
const NO_CONTROL_SERVER = 'the address is no control MCP server of a gateway'

/** The option of commands that use the control MCP server of a running gateway. */
export const controlMcpUrl = {
  kind: 'url',
  value: 'URL',
  default: 'http://127.0.0.1:8082/mcp',
  about: 'the control MCP server of a running gateway',
} as const

/**
 * Connects to a control MCP server as the agent whose token is in BREAKWATER_MCP_TOKEN. Rejects with an
 * `UnusableInput`.
 */
export async function controlMcpAt(url: string, env: Env): Promise<Client> {
  const token = env.BREAKWATER_MCP_TOKEN
  if (token === undefined || token === '')
    throw new UnusableInput('BREAKWATER_MCP_TOKEN is not set: it holds the token of the agent')
  // The error of such a header would show the token.
  if (!/^[!-~]+$/.test(token))
    throw new UnusableInput(
      'BREAKWATER_MCP_TOKEN holds a space, a line break or another character of no token',
    )
  const client = new Client(
    { ...implementation, name: 'breakwater-mcp' },
    { versionNegotiation: { mode: 'auto' } },
  )
  const requestInit = { headers: { authorization: `Bearer ${token}` } }
  await client
    .connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }))
    .catch((error: Error) => {
      throw new UnusableInput(`${url} cannot be used: ${reasonOf(error)}`)
    })
  if (client.getServerVersion()?.name !== CONTROL_SERVER) {
    await client.close()
    throw new UnusableInput(`${url} cannot be used: ${NO_CONTROL_SERVER}`)
  }
  return client
}

/** Returns the reason of a failed connection: the SDK wraps the reason in other errors. */
function reasonOf(error: Error): string {
  const { status } = error as { status?: unknown }
  if (status === 401) return 'the gateway does not know the token in BREAKWATER_MCP_TOKEN'
  if (status === 404) return NO_CONTROL_SERVER
  return error.cause instanceof Error ? reasonOf(error.cause) : error.message
}
