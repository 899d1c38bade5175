import type { GatewayGeneration } from '../registry/generation.ts'
import type { KnownServer } from '../registry/known-server.ts'
import { printable } from '../telemetry/printable.ts'

/** How much is told of why a server is down, in characters. */
const LONGEST_REASON = 400

export interface Addresses {
  /** Base URL of the data plane. */
  readonly data: string
  /** Base URL of the control plane. */
  readonly control: string
  /** The file with the control token, if it was made at start. */
  readonly tokenFile: string | undefined
}

/** What somebody who just started the gateway wants to know. */
export function banner({ servers }: GatewayGeneration, { data, control, tokenFile }: Addresses): string {
  const width = Math.max(0, ...[...servers.keys()].map((name) => name.length))
  const snippet = { mcpServers: { breakwater: { type: 'http', url: `${data}/mcp` } } }
  return [
    '',
    '  Breakwater is up.',
    '',
    `  All servers    ${data}/mcp`,
    `  One of them    ${data}/mcp/{server}`,
    `  Operators      ${control}/admin/servers, ${control}/metrics`,
    ...(tokenFile === undefined ? [] : [`  Control token  ${tokenFile}`]),
    '',
    ...[...servers.values()].map((server) => `  ${server.name.padEnd(width)}  ${describe(server)}`),
    '',
    '  Paste this into an MCP client:',
    '',
    ...JSON.stringify(snippet, undefined, 2)
      .split('\n')
      .map((line) => `  ${line}`),
    '',
  ].join('\n')
}

function describe(server: KnownServer): string {
  switch (server.state) {
    case 'up': {
      const count = server.entries('tools').length
      return `up, ${count} ${count === 1 ? 'tool' : 'tools'}`
    }
    case 'starting':
      return 'still starting'
    case 'down':
      return `down: ${printable(server.error?.message ?? 'no reason known', LONGEST_REASON)}`
  }
}
