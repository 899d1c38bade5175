import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import type { Env } from '../../config/files/interpolate.ts'
import { implementation } from '../../protocol/identity.ts'
import { UnusableInput } from '../shared/arguments.ts'

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
  return client
}
