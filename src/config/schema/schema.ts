import { z } from 'zod'
import { chaos } from '../../chaos/plan/schema.ts'
import { telemetry } from '../../telemetry/schema.ts'
import { gateway } from './gateway-schema.ts'
import { mesh } from './policies-schema.ts'
import { server } from './server-schema.ts'

export type { ServerConfig } from './server-schema.ts'

/** A server's name: it stands in URLs, and in front of its tools' names. */
export const serverName = z
  .string()
  .regex(
    /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/,
    'expected 1 to 64 of A-Z a-z 0-9 _ . - without . or - in front',
  )

const servers = z
  .record(serverName, server)
  .describe('MCP servers by name, as Claude, VS Code and Cursor write them.')

/** The whole config file. One source of types, defaults, documentation and the editors' JSON Schema. */
export const config = z
  .strictObject({
    $schema: z.string().optional().describe('For editors.'),
    gateway,
    mcpServers: servers.optional(),
    servers: servers.optional().describe('Another name for `mcpServers`, the one that VS Code uses.'),
    inputs: z
      .array(z.unknown())
      .optional()
      .describe('What VS Code asks a person for. A gateway cannot: ignored.'),
    policies: mesh,
    chaos,
    telemetry,
  })
  .transform(({ gateway, mcpServers, servers, policies, chaos, telemetry }, context) => {
    if (mcpServers !== undefined && servers !== undefined) {
      context.addIssue({
        code: 'custom',
        message: 'says the same as "mcpServers"; keep one',
        path: ['servers'],
      })
    }
    return { gateway, mcpServers: mcpServers ?? servers ?? {}, policies, chaos, telemetry }
  })

export type Config = z.output<typeof config>
export type GatewayConfig = Config['gateway']
