import { glob } from '../../../mesh/match.ts'
import { isObject } from '../../../protocol/jsonrpc.ts'
import { suggest } from '../../../units/suggest.ts'
import { ForeignPlanError, type ForeignOptions, type PlanPath } from './foreign.ts'

/** Returns the aliases of an unchecked plan that are text. The schema reports all other aliases as problems. */
export function aliasesIn(written: unknown): Readonly<Record<string, string>> {
  if (!isObject(written)) return {}
  return Object.fromEntries(
    Object.entries(written).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  )
}

/** Returns the parts of `SERVER` or `SERVER/TOOL`. */
export function partsOf(target: string): { readonly server: string; readonly tool: string | undefined } {
  const slash = target.indexOf('/')
  if (slash === -1) return { server: target, tool: undefined }
  return { server: target.slice(0, slash), tool: target.slice(slash + 1) }
}

/**
 * Returns our target for a foreign target: SERVER or SERVER/TOOL, as globs. Throws `ForeignPlanError` for an unknown
 * target.
 */
export type Targets = (target: string, path: PlanPath) => string

/** Returns a function that translates foreign targets. `targets`: all targets of the plan. */
export function targetsOf(
  targets: readonly string[],
  { aliases = {}, servers, soleTarget }: Pick<ForeignOptions, 'aliases' | 'servers' | 'soleTarget'>,
): Targets {
  const isServer = (name: string) => servers === undefined || servers.some(glob(name))
  const isKnown = (target: string) =>
    Object.hasOwn(aliases, target) || Object.hasOwn(aliases, partsOf(target).server)
  const unknown = new Set(
    targets
      .filter((target) => !isKnown(target))
      .map((target) => partsOf(target).server)
      .filter((server) => !isServer(server)),
  )
  // When the user wraps a single server, the only unknown server of a plan means the wrapped server.
  const sole = unknown.size === 1 ? soleTarget : undefined

  return (target, path) => {
    const { server, tool } = partsOf(target)
    const meant = Object.hasOwn(aliases, target) ? aliases[target]! : withTool(aliases, server, tool, path)
    if (isServer(partsOf(meant).server)) return meant
    if (sole !== undefined && !isKnown(target)) return tool === undefined ? sole : `${sole}/${tool}`
    const known =
      servers?.length === 0 ? '' : `; there ${servers?.length === 1 ? 'is' : 'are'} ${servers?.join(', ')}`
    throw new ForeignPlanError(
      path,
      isKnown(target)
        ? `"${target}" means "${meant}" by "aliases", but no server here has this name${known}`
        : `"${target}" is no server here${known}; ${guess(target, servers ?? [])}`,
    )
  }
}

/** Returns the target probably meant: the tool agents know as server__tool, a misspelt server, or an alias. */
function guess(target: string, servers: readonly string[]): string {
  const exposed = servers
    .filter((server) => target.startsWith(server))
    .flatMap((server) => {
      const tool = /^[^a-z0-9]+(.+)$/i.exec(target.slice(server.length))?.[1]
      return tool === undefined ? [] : [`${server}/${tool}`]
    })
  const { server, tool } = partsOf(target)
  const alike = suggest(server, servers)
  const named = alike === undefined || tool === undefined ? alike : `${alike}/${tool}`
  const meant = exposed[0] ?? named
  return meant === undefined
    ? '"aliases" can map the target to SERVER or SERVER/TOOL'
    : `did you mean ${meant}?`
}

/** Returns the server named by the first part of a target, with the tool added. */
function withTool(
  aliases: Readonly<Record<string, string>>,
  server: string,
  tool: string | undefined,
  path: PlanPath,
): string {
  const meant = Object.hasOwn(aliases, server) ? aliases[server]! : server
  if (tool === undefined) return meant
  if (!meant.includes('/')) return `${meant}/${tool}`
  throw new ForeignPlanError(path, `"${server}" means "${meant}" by "aliases", which is already a tool`)
}
