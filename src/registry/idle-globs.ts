import type { Live } from '../mesh/live.ts'
import { glob } from '../mesh/match.ts'
import type { Log } from '../telemetry/log.ts'
import type { GatewayGeneration } from './generation.ts'
import type { KnownServer } from './known-server.ts'

/** What is read of a generation. */
export interface Listed {
  readonly config: { readonly policies: Pick<GatewayGeneration['config']['policies'], 'overrides'> }
  readonly servers: ReadonlyMap<string, Pick<KnownServer, 'name' | 'state' | 'entries'>>
}

/** Warns of them once every server of the generation in force has been asked, if it is in force still. */
export function lookForIdleGlobs(log: Log, live: Live<GatewayGeneration>): void {
  const generation = live.current
  const settled = [...generation.servers.values()].map((server) => server.settled)
  void Promise.all(settled).then(() => {
    if (live.current === generation) warnOfIdleGlobs(log, generation)
  })
}

/**
 * Tells operators of overrides whose `tool` matches none that there is: a typing error, most likely. To be called when
 * every server has been asked; an override for a server that is down is left alone, for that may have such a tool.
 */
export function warnOfIdleGlobs(log: Log, { config, servers }: Listed): void {
  for (const [index, { match }] of config.policies.overrides.entries()) {
    if (match.tool === undefined) continue
    const meant = [...servers.values()].filter(({ name }) => glob(match.server ?? '*')(name))
    if (meant.length === 0 || meant.some(({ state }) => state !== 'up')) continue
    const holds = glob(match.tool)
    if (meant.some((server) => server.entries('tools').some(({ key }) => holds(key)))) continue
    const path = `policies.overrides[${index}].match.tool`
    log.warn({ path, servers: meant.map(({ name }) => name) }, `"${match.tool}" matches no tool`)
  }
}
