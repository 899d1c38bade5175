import type { Log } from '../telemetry/log.ts'
import { printable } from '../telemetry/printable.ts'
import type { KnownServer } from './known-server.ts'
import { doubtAbout, type Names } from './names.ts'

/** Most names of one server that are told, over its whole life, and how much of each, in characters. */
const MAX_TOLD = 100
const LONGEST = 160

/** What was told of each server already: a server can change its lists as often as it likes. */
const told = new WeakMap<KnownServer, Set<string>>()

/** Tells operators, once each, of tools whose names some clients will not take, and of all that agents are not shown. */
export function warnOfNames(log: Log, names: Names, server: KnownServer): void {
  const known = told.get(server) ?? new Set()
  told.set(server, known)
  const tell = (what: string, name: string, line: object, text: string) => {
    const key = `${what} ${name.slice(0, LONGEST)}`
    if (known.size > MAX_TOLD || known.has(key)) return
    known.add(key)
    if (known.size <= MAX_TOLD) log.warn({ server: server.name, ...line }, text)
    else log.warn({ server: server.name, told: MAX_TOLD }, 'more doubtful names: they are told no more')
  }
  for (const { kind, name, why, where } of server.unlisted) {
    const whom = where === 'aggregate' ? 'agents of /mcp' : 'agents'
    tell(kind, name, { list: kind, name: printable(name, LONGEST) }, `not shown to ${whom}: its name ${why}`)
  }
  for (const { key } of server.entries('tools')) {
    const name = names.expose(server.name, key)
    const doubt = names.faultOf('tools', server.name, key) === undefined ? doubtAbout(name) : undefined
    if (doubt !== undefined) tell('doubt', name, { tool: name.slice(0, 256) }, `doubtful name: ${doubt}`)
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
