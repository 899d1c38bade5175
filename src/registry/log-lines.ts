import { shownText } from '../config/secrets/redact.ts'
import type { Live } from '../mesh/live.ts'
import { glob } from '../mesh/match.ts'
import type { Log } from '../telemetry/log.ts'
import { printable } from '../telemetry/printable.ts'
import { clip } from '../units/recent.ts'
import type { GatewayGeneration } from './generation.ts'
import type { KnownServer } from './known-server.ts'
import type { Names } from './names.ts'

/** Most names logged per server over its life, and most characters of each name. */
const MAX_TOLD = 100
const LONGEST = 160

/** Warnings already logged, by server. Bounds the log, as a server may change its lists at any rate. */
const told = new WeakMap<KnownServer, Set<string>>()

/** Logs once each tool with another name on /mcp, and each entry hidden from agents. */
export function warnOfNames(log: Log, names: Names, server: KnownServer): void {
  const known = told.get(server) ?? new Set()
  told.set(server, known)
  const tell = (what: string, name: string, line: object, text: string) => {
    const key = `${what} ${clip(name, LONGEST)}`
    if (known.size > MAX_TOLD || known.has(key)) return
    known.add(key)
    if (known.size <= MAX_TOLD) log.warn({ server: server.name, ...line }, text)
    else
      log.warn(
        { server: server.name, told: MAX_TOLD },
        'further warnings about names of this server are suppressed',
      )
  }
  for (const { kind, name, why, where } of server.unlisted) {
    const whom = where === 'aggregate' ? 'agents of /mcp' : 'agents'
    tell(kind, name, { list: kind, name: printable(name, LONGEST) }, `not shown to ${whom}: its name ${why}`)
  }
  for (const { key } of server.entries('tools')) {
    const name = names.expose(server.name, key)
    const shown = server.exposedName(key)
    if (shown !== name)
      tell(
        'shortened',
        name,
        { tool: name.slice(0, 256), shown },
        'some models refuse the name of a tool: agents of /mcp see a shortened name',
      )
  }
}

export function logState(log: Log, { name, state, error }: KnownServer): void {
  if (state === 'up') log.info({ server: name }, 'server is up')
  else
    log.warn(
      { server: name, reason: error?.reason },
      `server is down: ${error?.message ?? 'no reason known'}`,
    )
}

export function warnOfCuts(log: Log, { name, catalog }: KnownServer): void {
  for (const [list, why] of Object.entries(catalog.cut ?? {}))
    log.warn({ server: name, list, why }, 'a list is offered in part only')
}

export interface Listed {
  readonly config: { readonly policies: Pick<GatewayGeneration['config']['policies'], 'overrides'> }
  readonly servers: ReadonlyMap<string, Pick<KnownServer, 'name' | 'state' | 'entries'>>
}

/** Calls `warnOfIdleGlobs` after every server has been asked, if the generation is still in force. */
export function lookForIdleGlobs(log: Log, live: Live<GatewayGeneration>): void {
  const generation = live.current
  const settled = [...generation.servers.values()].map((server) => server.settled)
  void Promise.all(settled).then(() => {
    if (live.current === generation) warnOfIdleGlobs(log, generation)
  })
}

/**
 * Logs overrides whose `tool` matches no tool, most likely a typing error. Call after every server has been asked.
 * Skips overrides of down servers, because a down server may have the tool.
 */
export function warnOfIdleGlobs(log: Log, { config, servers }: Listed): void {
  for (const [index, { match }] of config.policies.overrides.entries()) {
    if (match.tool === undefined) continue
    const meant = [...servers.values()].filter(({ name }) => glob(match.server ?? '*')(name))
    if (meant.length === 0 || meant.some(({ state }) => state !== 'up')) continue
    const holds = glob(match.tool)
    if (meant.some((server) => server.entries('tools').some(({ key }) => holds(key)))) continue
    const path = `policies.overrides[${index}].match.tool`
    log.warn(
      { path, servers: meant.map(({ name }) => name) },
      `"${shownText(match.tool, match)}" matches no tool`,
    )
  }
}
