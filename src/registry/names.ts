import { createHash } from 'node:crypto'
import { hasUnprintable } from '../telemetry/printable.ts'
import type { ListKind } from '../protocol/lists.ts'

const SCHEME = 'breakwater://'

/** A server, and a name or URI as that server knows it. */
export interface Resolved {
  readonly server: string
  readonly name: string
}

/** Longest names that are shown to agents at all, in characters: the protocol's own limit for tools, and what URIs may come to. */
const LONGEST: Readonly<Record<ListKind, number>> = {
  tools: 128,
  prompts: 128,
  resources: 8_192,
  resourceTemplates: 8_192,
}

/**
 * Why no agent may see or use something by its name; undefined when they may. Control characters in names are for the
 * terminals of those who read them, or for filters that do not; what has no name cannot be told from others.
 */
export function faultOfName(kind: ListKind, name: string): string | undefined {
  if (name === '') return 'is empty'
  if (name.length > LONGEST[kind]) return `is longer than ${LONGEST[kind]} characters`
  return hasUnprintable(name) ? 'holds control characters' : undefined
}

/** Names of tools that the APIs of all models take; the protocol itself allows 128 characters, and dots. */
const LONGEST_TAKEN = 64
const TAKEN = /^[A-Za-z0-9_-]+$/

/** Whether agents can hand a tool of this name to any model. */
export function isTakenByModels(name: string): boolean {
  return name.length <= LONGEST_TAKEN && TAKEN.test(name)
}

/** How much of a SHA-256 stands behind a name that was shortened, in hexadecimal digits. */
const DIGEST = 8

/**
 * Names on the aggregated endpoint, both ways. Tools, prompts and task ids are `{server}{separator}{name}`, tools only as far
 * as models take such a name; resource URIs are `breakwater://{server}/{uri}`, except that `ui://` URIs keep their scheme, which hosts
 * look at, and become `ui://{server}{separator}{rest}`. Templates are mapped like URIs, so that whatever
 * is put into one maps back.
 */
export class Names {
  readonly separator: string

  constructor(separator: string) {
    this.separator = separator
  }

  expose(server: string, name: string): string {
    return server + this.separator + name
  }

  /**
   * The name of a tool: as `expose` has it where all models take that, or else its beginning, other characters as `_`, and behind
   * it a digest of the tool's own name, which keeps it the same over restarts and apart from others.
   */
  exposeTool(server: string, tool: string): string {
    const name = this.expose(server, tool)
    if (isTakenByModels(name)) return name
    const digest = createHash('sha256').update(tool).digest('hex').slice(0, DIGEST)
    const kept = LONGEST_TAKEN - server.length - this.separator.length - 1 - DIGEST
    return this.expose(server, `${tool.replace(/[^A-Za-z0-9_-]/gu, '_').slice(0, kept)}_${digest}`)
  }

  resolve(exposed: string): Resolved | undefined {
    const at = exposed.indexOf(this.separator)
    if (at < 1) return undefined
    return { server: exposed.slice(0, at), name: exposed.slice(at + this.separator.length) }
  }

  /**
   * Why agents of the aggregated endpoint may not see or use something that those of its own server's may, by its name there;
   * undefined when they may: the limits are for what an agent sees.
   */
  faultOf(kind: ListKind, server: string, name: string): string | undefined {
    if (kind === 'tools') return undefined
    const isUri = kind === 'resources' || kind === 'resourceTemplates'
    const before = isUri && !name.startsWith('ui://') ? SCHEME.length + 1 : this.separator.length
    if (before + server.length + name.length <= LONGEST[kind]) return undefined
    return `is longer than ${LONGEST[kind]} characters with that of its server before it`
  }

  exposeUri(server: string, uri: string): string {
    return uri.startsWith('ui://') ? `ui://${this.expose(server, uri.slice(5))}` : `${SCHEME}${server}/${uri}`
  }

  resolveUri(exposed: string): Resolved | undefined {
    if (exposed.startsWith('ui://')) {
      const resolved = this.resolve(exposed.slice(5))
      return resolved && { server: resolved.server, name: `ui://${resolved.name}` }
    }
    const slash = exposed.indexOf('/', SCHEME.length)
    if (!exposed.startsWith(SCHEME) || slash === -1) return undefined
    return { server: exposed.slice(SCHEME.length, slash), name: exposed.slice(slash + 1) }
  }
}
