import { faults as types } from '../../chaos/faults/index.ts'
import type { Family } from '../../chaos/fault.ts'
import type { HitTool } from '../../approval/envelope.ts'
import { digestOf } from '../../approval/digest.ts'
import { UNLISTED } from '../../control/mcp/traffic.ts'
import type { ServerConfig } from '../../config/schema/schema.ts'
import type { Spec, SpecFault } from '../../experiments/guarded/spec.ts'
import { glob, type Match, matcher } from '../../mesh/match.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { Server } from '../../registry/server.ts'

/** Faults of these families hit each call of a server, whatever tool the fault matches. */
const wholeServer: readonly Family[] = ['process', 'session', 'registry', 'handshake', 'auth']

/**
 * Returns the SHA-256 of the URLs of a server, without its headers; of a process, of its command with arguments, folder
 * and environment.
 */
export function identityOf(config: ServerConfig): string {
  if (config.type === 'stdio') {
    const { command, args, cwd, env } = config
    return digestOf({ command, args, cwd, env })
  }
  return digestOf({ type: config.type, urls: [...config.urls].sort() })
}

/** Returns each tool that a fault of the run could hit, sorted: by the generation in force. */
export function hitToolsOf(spec: Spec, { servers, mesh }: GatewayGeneration): readonly HitTool[] {
  const isServer = glob(spec.targets.server)
  const isTool = glob(spec.targets.tool ?? '*')
  const hit = new Map<string, HitTool>()
  const add = (server: Server, tool: string) => {
    const effect = mesh.effectOf({ server: server.name, method: 'tools/call', tool })
    hit.set(JSON.stringify([server.name, tool]), {
      server: server.name,
      identity: identityOf(server.config),
      tool,
      effect,
    })
  }
  for (const fault of spec.faults) {
    const type = types[fault.type]
    const isMeant = matcher(fault.match ?? {})
    const mayWrite = fault.allowWrites === true || type?.withholds === true
    const isExact = [spec.targets.tool, (fault.match as Match | undefined)?.tool].some(
      (tool) => tool !== undefined && !/[*?]/.test(tool),
    )
    for (const server of servers.values()) {
      if (!isServer(server.name)) continue
      const isWhole = type === undefined || wholeServer.includes(type.family)
      // A fault that may hit writes also hits tools that no list has.
      if (mayWrite && !isExact) add(server, UNLISTED)
      for (const { key } of server.entries('tools')) {
        const isReadOnly =
          mesh.effectOf({ server: server.name, method: 'tools/call', tool: key }) === 'read_only'
        if (isWhole || (isTool(key) && isMeant(server.name, 'tools/call', key) && (mayWrite || isReadOnly)))
          add(server, key)
      }
    }
    for (const server of alsoHit(fault, servers))
      for (const { key } of server.entries('tools')) add(server, key)
  }
  return [...hit.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, tool]) => tool)
}

/** Returns the server that gets the calls of a fault in place of their own server. */
function alsoHit(fault: SpecFault, servers: ReadonlyMap<string, Server>): readonly Server[] {
  const name = types[fault.type]?.sendsTo?.(fault)
  const server = name === undefined ? undefined : servers.get(name)
  return server === undefined ? [] : [server]
}

/** Returns each server with its identity and its tools, for the draft of an envelope. */
export const envelopeTargetsOf = ({ servers, mesh }: GatewayGeneration) =>
  [...servers.values()]
    .filter((server) => !server.protected)
    .map((server) => ({
      server: server.name,
      identity: identityOf(server.config),
      tools: server.entries('tools').map(({ key: tool }) => ({
        tool,
        effect: mesh.effectOf({ server: server.name, method: 'tools/call', tool }),
      })),
    }))
