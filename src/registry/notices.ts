import type { Log } from '../telemetry/log.ts'
import { doubtAbout, type Names } from './names.ts'
import type { KnownServer } from './known-server.ts'

/** Tells operators about tools whose names some clients will not take. */
export function warnOfNames(log: Log, names: Names, server: KnownServer): void {
  for (const { key } of server.entries('tools')) {
    const name = names.expose(server.name, key)
    const doubt = doubtAbout(name)
    if (doubt !== undefined)
      log.warn({ server: server.name, tool: name.slice(0, 256) }, `doubtful name: ${doubt}`)
  }
}

/** Tells operators that a server came or went. */
export function logState(log: Log, { name, state, error }: KnownServer): void {
  if (state === 'up') log.info({ server: name }, 'server is up')
  else
    log.warn(
      { server: name, reason: error?.reason },
      `server is down: ${error?.message ?? 'no reason known'}`,
    )
}

/** Tells operators about lists of which only a part is offered. */
export function warnOfCuts(log: Log, { name, catalog }: KnownServer): void {
  for (const [list, why] of Object.entries(catalog.cut ?? {}))
    log.warn({ server: name, list, why }, 'a list is offered in part only')
}
