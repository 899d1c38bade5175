import { resolve } from 'node:path'
import type { Config, ServerConfig } from './schema/schema.ts'

/** The config with its relative paths made absolute, from the folder of its main file on: it means the same wherever it is started. */
export function withAbsolutePaths(config: Config, folder: string): Config {
  const from = <Key extends string>(holder: { readonly [K in Key]?: string | undefined }, key: Key) => {
    const path = holder[key]
    return path === undefined ? {} : { [key]: resolve(folder, path) }
  }
  const servers = Object.entries(config.mcpServers).map(([name, server]): [string, ServerConfig] => {
    if (server.type === 'stdio' || server.tls === undefined) return [name, server]
    const { tls } = server
    return [
      name,
      { ...server, tls: { ...tls, ...from(tls, 'ca'), ...from(tls, 'cert'), ...from(tls, 'key') } },
    ]
  })
  const { gateway, chaos, telemetry } = config
  return {
    ...config,
    gateway: { ...gateway, ...from(gateway, 'stateDir') },
    mcpServers: Object.fromEntries(servers),
    chaos: {
      ...chaos,
      ...from(chaos, 'killFile'),
      journal: { ...chaos.journal, ...from(chaos.journal, 'file') },
    },
    telemetry: { ...telemetry, recording: { ...telemetry.recording, ...from(telemetry.recording, 'file') } },
  }
}
