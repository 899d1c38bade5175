import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { ClientCapabilities } from '@modelcontextprotocol/sdk/types.js'

const open: Client[] = []

/** Connects the SDK's own client to an endpoint. `prepare` sets its handlers before it initializes. */
export async function connect(
  url: string,
  capabilities: ClientCapabilities = {},
  prepare: (client: Client) => void = () => undefined,
): Promise<Client> {
  const client = new Client({ name: 'e2e', version: '1.0.0' }, { capabilities })
  prepare(client)
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  open.push(client)
  return client
}

export async function closeClients(): Promise<void> {
  await Promise.all(open.splice(0).map((client) => client.close()))
}

export function textOf(result: Awaited<ReturnType<Client['callTool']>>): string {
  const [block] = result.content as { text?: string }[]
  return block?.text ?? ''
}
