import { createHash } from 'node:crypto'
import { hasUnprintable } from '../telemetry/printable.ts'
import type { ListKind } from '../protocol/lists.ts'

const SCHEME = 'breakwater://'

/** A server, and its own name or URI of an entry. */
export interface Resolved {
  readonly server: string
  readonly name: string
}

/** Longest names shown to agents, in characters: the protocol's limit for tools, and a usual limit for URIs. */
const LONGEST: Readonly<Record<ListKind, number>> = {
  tools: 128,
  prompts: 128,
  resources: 8_192,
  resourceTemplates: 8_192,
}

/**
 * Returns why no agent may see or use an entry of this name; undefined for a good name. Control characters in names can
 * attack readers' terminals, or slip past filters. Entries with empty names cannot be told apart.
 */
export function faultOfName(kind: ListKind, name: string): string | undefined {
  if (name === '') return 'is empty'
  if (name.length > LONGEST[kind]) return `is longer than ${LONGEST[kind]} characters`
  return hasUnprintable(name) ? 'holds control characters' : undefined
}

/** Tool names accepted by the APIs of all models. The protocol itself allows 128 characters, and dots. */
const LONGEST_TAKEN = 64
const TAKEN = /^[A-Za-z0-9_-]+$/

export function isTakenByModels(name: string): boolean {
  return name.length <= LONGEST_TAKEN && TAKEN.test(name)
}

/** Hexadecimal digits of the SHA-256 at the end of a shortened name. */
const DIGEST = 8

/**
 * Maps names to the aggregated endpoint and back. Tools, prompts and task ids become `{server}{separator}{name}`; tool
 * names refused by models are shortened. Resource URIs become `breakwater://{server}/{uri}`. `ui://` URIs keep their
 * scheme, because hosts check the scheme, and become `ui://{server}{separator}{rest}`. URI templates map like URIs, so
 * expanded templates map back.
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
   * Returns a tool's name on the aggregated endpoint: `expose`, if all models accept the name. Otherwise its beginning,
   * with `_` for refused characters, then a digest of the tool's own name. The digest keeps the name unique, and stable
   * over restarts.
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
   * Returns why an entry's exposed name is too long for the aggregated endpoint, even if its own name is short enough.
   * Undefined for a good name.
   */
  faultOf(kind: ListKind, server: string, name: string): string | undefined {
    if (kind === 'tools') return undefined
    const isUri = kind === 'resources' || kind === 'resourceTemplates'
    const before = isUri && !name.startsWith('ui://') ? SCHEME.length + 1 : this.separator.length
    if (before + server.length + name.length <= LONGEST[kind]) return undefined
    return `is longer than ${LONGEST[kind]} characters with the server's name in front`
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
