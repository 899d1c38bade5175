import { environmentLock, type Locks } from '../../chaos/control/guard.ts'
import { faults as types } from '../../chaos/faults/index.ts'
import { armMatcher, sparesWrites } from '../../chaos/plan/checks.ts'
import { takesServer } from '../../experiments/capacity.ts'
import { armNames } from '../../experiments/schema.ts'
import { glob, globsMeet, isGlob, type Match } from '../../mesh/match.ts'
import type { Effect } from '../../mesh/policy.ts'
import { methods } from '../../mesh/compile.ts'
import { didYouMean } from '../../units/suggest.ts'
import type { ConfigPath } from '../files/places.ts'
import type { Config } from '../schema/schema.ts'
import type { ConfigFinding } from './issues.ts'

// This file finds parts of a config that are allowed but have no effect.

/** All known tool names of each server, including tools that the config does not offer. */
export type KnownTools = ReadonlyMap<string, readonly string[]>

/** Returns the known tools that the config offers to agents. */
export function offeredTools({ mcpServers }: Config, known: KnownTools): KnownTools {
  return new Map(
    [...known].map(([server, tools]) => [
      server,
      tools.filter((tool) => isOffered(mcpServers[server]!.tools, tool)),
    ]),
  )
}

/** Warns of `chaos.enabled: true` where the environment does not allow faults. */
export function idleChaos(
  { chaos, gateway: { environment, chaosEnvironments } }: Config,
  variables: Locks['variables'],
): ConfigFinding[] {
  const lock = environmentLock({ environment, chaosEnvironments, variables })
  if (!chaos.enabled || lock === undefined) return []
  const message = `has no effect: ${lock}`
  return [{ path: ['chaos', 'enabled'], at: 'key', message }]
}

/** Warns of overrides that match no call, and of overrides that a later override replaces. */
export function idleOverrides({ mcpServers, policies }: Config, tools: KnownTools): ConfigFinding[] {
  const names = Object.keys(mcpServers)
  return policies.overrides.flatMap(({ match, ...settings }, index) => {
    const path = ['policies', 'overrides', index]
    const { server, tool, method } = match
    const find = (key: keyof Match, message: string): ConfigFinding => ({
      path: [...path, 'match', key],
      at: 'value',
      message,
    })
    const findings: ConfigFinding[] = []
    const named = names.filter(glob(server ?? '*'))
    if (server !== undefined && named.length === 0)
      findings.push(find('server', `"${server}" matches no server${didYouMean(server, names)}`))
    const meant = named.filter((name) => mcpServers[name]?.disabled !== true)
    if (method !== undefined && !methods.some(glob(method))) {
      const meant = didYouMean(method, methods)
      if (meant !== '') findings.push(find('method', `"${method}" is no method of the protocol${meant}`))
    }
    if (tool !== undefined && method !== undefined && !glob(method)('tools/call'))
      findings.push(find('method', 'never matches: only calls of the method tools/call have a tool'))
    const known = meant.map((name) => tools.get(name) ?? [])
    if (tool !== undefined && known.length > 0 && known.every((listed) => listed.length > 0)) {
      const hint = didYouMean(tool, known.flat())
      const message = `"${tool}" matches no tool of ${meant.join(', ')}: it applies to nothing until such a tool exists${hint}`
      const leftOut = !isGlob(tool) && !meant.some((name) => isOffered(mcpServers[name]!.tools, tool))
      if (!leftOut && !known.flat().some(glob(tool))) findings.push(find('tool', message))
    }
    const keys = Object.keys(settings)
    if (keys.length === 0) findings.push({ path, at: 'key', message: 'sets no policy' })
    const later = policies.overrides.findIndex(
      (other, at) => at > index && keys.every((key) => key in other) && covers(other.match, match),
    )
    if (later !== -1 && keys.length > 0) {
      const message = `has no effect: overrides[${later}] comes later and sets the same for all its calls`
      findings.push({ path, at: 'key', message })
    }
    return findings
  })
}

/** Warns of overrides, faults and experiments that match only disabled servers. */
export function disabledOnly(config: Config): ConfigFinding[] {
  const { mcpServers } = config
  return matchesOf(config).flatMap(([path, match]): ConfigFinding[] => {
    const { server } = match ?? {}
    if (server === undefined) return []
    const meant = Object.entries(mcpServers).filter(([name]) => glob(server)(name))
    if (meant.length === 0 || meant.some(([, { disabled }]) => !disabled)) return []
    const message = `"${server}" matches disabled servers only`
    return [{ path: [...path, 'match', 'server'], at: 'value', message }]
  })
}

function matchesOf({ policies, chaos, experiments }: Config): (readonly [ConfigPath, Match | undefined])[] {
  return [
    ...policies.overrides.map(({ match }, at) => [['policies', 'overrides', at], match] as const),
    ...chaos.faults.map(({ match }, at) => [['chaos', 'faults', at], match] as const),
    ...experiments.map(({ match }, at) => [['experiments', at], match] as const),
  ]
}

/**
 * Warns of tools in `tools.include`, `tools.exclude`, health checks, experiments and fallbacks that no known server
 * has.
 */
export function absentTools(
  { mcpServers, policies, experiments }: Config,
  known: KnownTools,
): ConfigFinding[] {
  const absent = (servers: readonly string[], tool: string, path: ConfigPath): ConfigFinding[] => {
    const listed = servers.map((name) => known.get(name) ?? [])
    if (servers.length === 0 || listed.some((tools) => tools.length === 0 || tools.some(glob(tool))))
      return []
    const message = `${matches(tool)} no tool of ${servers.join(', ')}${didYouMean(tool, listed.flat())}`
    return [{ path, at: 'value', message }]
  }
  const names = Object.keys(mcpServers)
  const checks = Object.entries(mcpServers).flatMap(([name, { health }]) =>
    health && health.tool
      ? absent([name], health.tool.name, ['mcpServers', name, 'health', 'tool', 'name'])
      : [],
  )
  const lists = Object.entries(mcpServers).flatMap(([name, { tools }]) =>
    (['include', 'exclude'] as const).flatMap((list) =>
      tools[list].flatMap((pattern, at) =>
        pattern === '*' ? [] : absent([name], pattern, ['mcpServers', name, 'tools', list, at]),
      ),
    ),
  )
  const tried = experiments.flatMap(({ match: { server = '*', tool } }, at) =>
    tool === undefined
      ? []
      : absent(
          names.filter((name) => glob(server)(name) && isOffered(mcpServers[name]!.tools, tool)),
          tool,
          ['experiments', at, 'match', 'tool'],
        ),
  )
  const places = [
    { path: ['policies', 'defaults'], match: undefined, degrade: policies.defaults.degrade },
    ...Object.entries(policies.sets).map(([set, { degrade }]) => ({
      path: ['policies', 'sets', set],
      match: undefined,
      degrade,
    })),
    ...policies.overrides.map((override, at) => ({ path: ['policies', 'overrides', at], ...override })),
  ]
  const fallbacks = places.flatMap(({ path, match, degrade }): ConfigFinding[] => {
    const fallback = degrade && degrade.fallback
    if (!fallback) return []
    const { server, tool } = fallback
    const at = [...path, 'degrade', 'fallback']
    if (server !== undefined && mcpServers[server]?.disabled === true)
      return [
        { path: [...at, 'server'], at: 'value', message: `"${server}" is disabled: it answers nothing` },
      ]
    const holders = names.filter(glob(match?.server ?? '*'))
    const servers = server === undefined ? holders : [server]
    if (servers.length > 0 && !servers.some((name) => isOffered(mcpServers[name]!.tools, tool))) {
      const message = `"${tool}" answers nothing: tools.include or tools.exclude leaves the tool out`
      return [{ path: [...at, 'tool'], at: 'value', message }]
    }
    if (match?.tool === tool && holders.every((name) => name === (server ?? name)))
      return [{ path: at, at: 'key', message: `has no effect: "${tool}" falls back to itself` }]
    return absent(servers, tool, [...at, 'tool'])
  })
  return [...lists, ...checks, ...tried, ...fallbacks]
}

/** Returns the beginning of a message: `"name" is` or `"glob" matches`. */
const matches = (pattern: string) => `"${pattern}" ${isGlob(pattern) ? 'matches' : 'is'}`

interface ForReads {
  readonly path: ConfigPath
  readonly match?: Match | undefined
  readonly isFault?: true
  /** The `effect` that the same override sets; undefined if a later override may set another effect. */
  readonly effect?: Effect | undefined
}

/**
 * Warns of hedges, last known good answers and faults that need read-only tools where none is known, and of fallbacks
 * for writing tools.
 */
export function unknownEffects({ mcpServers, policies, chaos }: Config): ConfigFinding[] {
  const { defaults, overrides, sets } = policies
  const none = { match: undefined, effect: undefined }
  const places = [
    { path: ['policies', 'defaults'], ...none, ...defaults },
    ...overrides.map((override, at) => ({
      ...override,
      path: ['policies', 'overrides', at],
      effect: meeting(override.match, overrides.slice(at + 1)).some(({ effect }) => effect !== undefined)
        ? undefined
        : override.effect,
    })),
    ...Object.entries(sets).map(([set, settings]) => ({
      path: ['policies', 'sets', set],
      ...none,
      ...settings,
    })),
  ]
  const forReads: ForReads[] = [
    ...places.flatMap(({ path, match, effect, hedge, degrade }) => [
      ...(hedge ? [{ path: [...path, 'hedge'], match, effect }] : []),
      ...(degrade && degrade.lastKnownGood
        ? [{ path: [...path, 'degrade', 'lastKnownGood'], match, effect }]
        : []),
    ]),
    ...chaos.faults.flatMap((fault, at): ForReads[] =>
      sparesWrites(fault, types)
        ? [{ path: ['chaos', 'faults', at], match: fault.match, isFault: true }]
        : [],
    ),
  ]
  const unknown = forReads.flatMap(({ path, match, isFault, effect }): ConfigFinding[] => {
    const find = (why: string): ConfigFinding[] => [
      { path, at: 'key', message: `has no effect on tool calls: ${why}` },
    ]
    if (effect !== undefined && effect !== 'read_only')
      return find(`it is for read-only tools, and this override says "effect: ${effect}"`)
    const meant = Object.entries(mcpServers).filter(
      ([name, server]) =>
        !server.disabled && !(isFault && server.protected) && glob(match?.server ?? '*')(name),
    )
    const isKnown = ([name, { trusted }]: (typeof meant)[number]) =>
      trusted ||
      meeting({ server: name, tool: match?.tool }, overrides).some(({ effect }) => effect === 'read_only')
    if (meant.length === 0 || meant.some(isKnown)) return []
    const tools = `${meant.map(([name]) => name).join(', ')}${match?.tool === undefined ? '' : ' that it matches'}`
    const ways = `"trusted: true" believes the server's own annotations, and an override with "effect: read_only" names read-only tools`
    const allowed = isFault ? '; "allowWrites: true" lets a fault hit any tool' : ''
    return find(`no tool of ${tools} is known to be read-only; ${ways}${allowed}`)
  })
  const doubled = places.flatMap(({ path, effect, degrade }): ConfigFinding[] => {
    if (effect !== 'write' || !degrade || !degrade.fallback) return []
    const message = 'is for a tool that writes: the write may have run when the fallback answers'
    return [{ path: [...path, 'degrade', 'fallback'], at: 'key', message }]
  })
  return [...unknown, ...doubled]
}

/** Returns the overrides that can match a tool call together with `match`. */
export function meeting<Matched extends { readonly match: Match }>(
  { server, tool }: Match,
  overrides: readonly Matched[],
): Matched[] {
  return overrides.filter(({ match }) => globsMeet(match.server, server) && globsMeet(match.tool, tool))
}

/** Warns of faults for an arm when no call of the arm's experiment matches the fault. */
export function idleArms({ mcpServers, chaos, experiments }: Config): ConfigFinding[] {
  return chaos.faults.flatMap(({ match: { server = '*', tool, tenant, arm } = {} }, at): ConfigFinding[] => {
    if (arm === undefined) return []
    const hit = Object.keys(mcpServers).filter((name) => !mcpServers[name]!.disabled && glob(server)(name))
    const aimed = experiments.filter((experiment) => armNames([experiment]).some(armMatcher(arm)))
    const isMet = aimed.some(
      (experiment) =>
        hit.some(takesServer(experiment)) &&
        globsMeet(experiment.match.tool, tool) &&
        globsMeet(experiment.match.tenant, tenant),
    )
    if (hit.length === 0 || aimed.length === 0 || isMet) return []
    const names = aimed.map(({ name }) => `"${name}"`).join(', ')
    const message = `hits nothing: the fault matches no call of ${names}`
    return [{ path: ['chaos', 'faults', at, 'match', 'arm'], at: 'value', message }]
  })
}

/** Warns of experiments with equal policies in all arms. */
export function sameArms({ experiments, policies: { sets } }: Config): ConfigFinding[] {
  const contentOf = (set: string) => JSON.stringify(sets[set] ?? {})
  return experiments.flatMap(({ arms }, at): ConfigFinding[] => {
    const chosen = Object.values(arms)
    if (new Set(chosen.map(contentOf)).size > 1) return []
    const all = chosen.length === 2 ? 'both' : 'all'
    const message = `${all} arms have the same policies: an A/A test, which can only show how large chance differences are`
    return [{ path: ['experiments', at, 'arms'], at: 'key', message }]
  })
}

/** Returns true if every call that matches `other` certainly matches `one`. */
function covers(one: Match, other: Match): boolean {
  return (['server', 'tool', 'method'] as const).every((key) => {
    const pattern = one[key]
    if (pattern === undefined || pattern === other[key]) return true
    const name = other[key]
    // A pattern for tools matches only calls with a tool, so `other` must name one.
    if (key === 'tool')
      return name !== undefined && (pattern === '*' || (!isGlob(name) && glob(pattern)(name)))
    return pattern === '*' || (name !== undefined && !isGlob(name) && glob(pattern)(name))
  })
}

/**
 * Warns of tools in overrides, faults, experiments and health checks that are offered to no agent under the given name.
 */
export function idleTools(config: Config, known: KnownTools): ConfigFinding[] {
  const {
    mcpServers,
    gateway: { separator },
  } = config
  const matched = matchesOf(config).flatMap(([path, match]): ConfigFinding[] => {
    const { server = '*', tool } = match ?? {}
    const meant = Object.entries(mcpServers).filter(([name]) => glob(server)(name))
    if (tool === undefined || meant.length === 0) return []
    const at = [...path, 'match', 'tool']
    const exposed = meant.flatMap(([name]) => exposedName(name, tool, separator, known)).slice(0, 1)
    if (exposed.length > 0) return exposed.map((message) => ({ path: at, at: 'value', message }))
    const isUsed = meant.some(
      ([, { health, tools }]) => (health && health.tool?.name === tool) || isOffered(tools, tool),
    )
    if (isGlob(tool) || isUsed) return []
    const message = `"${tool}" is offered to no agent: tools.include or tools.exclude leaves the tool out`
    return [{ path: at, at: 'value', message }]
  })
  const named = Object.entries(mcpServers).flatMap(([name, { tools, health }]) => {
    const places: readonly (readonly [ConfigPath, string])[] = [
      ...tools.include.map((tool, at) => [['tools', 'include', at], tool] as const),
      ...tools.exclude.map((tool, at) => [['tools', 'exclude', at], tool] as const),
      ...(health && health.tool ? [[['health', 'tool', 'name'], health.tool.name] as const] : []),
    ]
    return places.flatMap(([path, tool]) =>
      exposedName(name, tool, separator, known).map((message): ConfigFinding => ({
        path: ['mcpServers', name, ...path],
        at: 'value',
        message,
      })),
    )
  })
  return [...named, ...matched]
}

const isOffered = ({ include, exclude }: Config['mcpServers'][string]['tools'], tool: string) =>
  include.some((pattern) => glob(pattern)(tool)) && !exclude.some((pattern) => glob(pattern)(tool))

/** Returns a message about a tool with the server's prefix, as on `/mcp`; empty if the server itself uses this name. */
function exposedName(server: string, tool: string, separator: string, known: KnownTools): string[] {
  const prefix = server + separator
  if (!tool.startsWith(prefix) || known.get(server)?.some(glob(tool)) === true) return []
  const own = tool.slice(prefix.length)
  return [`at /mcp the tool "${own}" of ${server} is called "${tool}"; if you mean this tool, write "${own}"`]
}

/** Warns of server settings that have no effect, or more effect than intended. */
export function idleServers({ mcpServers }: Config): ConfigFinding[] {
  return Object.entries(mcpServers).flatMap(([name, server]) => {
    const findings: ConfigFinding[] = []
    const path = ['mcpServers', name]
    if (server.tools.include.length === 0) {
      findings.push({
        path: [...path, 'tools', 'include'],
        at: 'key',
        message: 'is empty, so no tool is offered',
      })
    }
    if (server.tools.exclude.includes('*')) {
      const message = 'leaves out all tools, so no tool is offered'
      findings.push({ path: [...path, 'tools', 'exclude'], at: 'key', message })
    }
    if (server.type === 'stdio') return findings
    if (new Set(server.urls).size < server.urls.length) {
      findings.push({ path: [...path, 'urls'], at: 'key', message: 'lists a replica more than once' })
    }
    const isSecure = server.urls.some((url) => /^https:/i.test(url))
    if (server.tls !== undefined && !isSecure) {
      findings.push({
        path: [...path, 'tls'],
        at: 'key',
        message: 'has no effect: no URL of this server is https://',
      })
    }
    if (isSecure && server.tls?.rejectUnauthorized === false) {
      const message = 'anyone between here and the server can read and change every call'
      findings.push({ path: [...path, 'tls', 'rejectUnauthorized'], at: 'value', message })
    }
    return findings
  })
}
