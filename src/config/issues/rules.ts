import type { Locks } from '../../chaos/control/guard.ts'
import { serverAddress } from '../../chaos/fault.ts'
import { faults as types } from '../../chaos/faults/index.ts'
import { targetFindings } from '../../chaos/plan/checks.ts'
import { overlap, sharesAt } from '../../experiments/capacity.ts'
import { armNames, type Experiment } from '../../experiments/schema.ts'
import { glob, globsMeet, type Match } from '../../mesh/match.ts'
import type { Policy } from '../../mesh/policy.ts'
import { DEFAULT_SET, isForAll, type Override, type PolicySettings } from '../../mesh/settings.ts'
import { policies as registered } from '../../policies/index.ts'
import { formatDuration } from '../../units/duration.ts'
import { didYouMean } from '../../units/suggest.ts'
import type { ConfigPath } from '../files/places.ts'
import { isLoopback, parseAddress } from '../../units/address.ts'
import type { Config } from '../schema/schema.ts'
import {
  absentTools,
  disabledOnly,
  idleArms,
  idleChaos,
  idleOverrides,
  idleServers,
  idleTools,
  type KnownTools,
  meeting,
  offeredTools,
  sameArms,
  unknownEffects,
} from './idle.ts'
import type { ConfigFinding } from './issues.ts'

/** Returns mistakes that the schema of a single key cannot show. Each finding makes the config unusable. */
export function brokenRules(config: Config): ConfigFinding[] {
  return [
    ...planes(config),
    ...controlMcpRules(config),
    ...serverNames(config),
    ...sentTwice(config),
    ...contradictions(config),
    ...experimentFindings(config),
    ...faultFindings(config, 'error'),
  ]
}

function controlMcpRules({ gateway: { controlMcp, listen, control, stateDir } }: Config): ConfigFinding[] {
  if (controlMcp === undefined) return []
  const findings: ConfigFinding[] = []
  const path = ['gateway', 'controlMcp']
  if (stateDir === undefined)
    findings.push({
      path,
      at: 'value',
      message: 'needs gateway.stateDir: budgets and approvals must outlive the process',
    })
  const own = parseAddress(controlMcp.listen)
  for (const [key, text] of Object.entries({ listen, control })) {
    const other = parseAddress(text)
    if (own === undefined || own.port === 0 || own.port !== other?.port) continue
    const message = `expected another port than "gateway.${key}", found ${own.port} for both`
    findings.push({ path: [...path, 'listen'], at: 'value', message })
  }
  return findings
}

function planes({ gateway }: Config): ConfigFinding[] {
  const findings: ConfigFinding[] = []
  const listen = parseAddress(gateway.listen)
  const control = parseAddress(gateway.control)
  const path = ['gateway', 'control']
  if (control !== undefined && !isLoopback(control.host) && gateway.controlToken === undefined) {
    const message = `${control.host} is not a loopback address: add "controlToken", or listen on 127.0.0.1`
    findings.push({ path, at: 'value', message })
  }
  if (control !== undefined && control.port !== 0 && control.port === listen?.port) {
    findings.push({
      path,
      at: 'value',
      message: `expected another port than "listen", found ${control.port} for both`,
    })
  }
  return findings
}

function serverNames({ gateway: { separator }, mcpServers }: Config): ConfigFinding[] {
  const seen = new Map<string, string>()
  return Object.keys(mcpServers).flatMap((name): ConfigFinding[] => {
    const path = ['mcpServers', name]
    const twin = seen.get(name.toLowerCase())
    seen.set(name.toLowerCase(), name)
    if (twin !== undefined) {
      return [
        { path, at: 'key', message: `differs from "${twin}" only by case, which people cannot tell apart` },
      ]
    }
    // In a tool's full name, the first separator must be the separator between server and tool.
    if (`${name}${separator}`.indexOf(separator) === name.length) return []
    const message = `a server name may not contain the separator "${separator}", or end with a part of it`
    return [{ path, at: 'key', message }]
  })
}

function sentTwice({ mcpServers }: Config): ConfigFinding[] {
  return Object.entries(mcpServers).flatMap(([name, server]) => {
    if (server.type === 'stdio') return []
    const fixed = new Set(Object.keys(server.headers).map((header) => header.toLowerCase()))
    const message = 'would be sent twice: "headers" sets it too'
    return Object.entries(server.forwardHeaders).flatMap(([from, to]): ConfigFinding[] =>
      fixed.has(to) ? [{ path: ['mcpServers', name, 'forwardHeaders', from], at: 'value', message }] : [],
    )
  })
}

type Policies = Config['policies']
type Settings = Omit<Policies['overrides'][number], 'match' | 'effect'>

interface Place {
  readonly path: ConfigPath
  readonly settings: Settings
  readonly match?: Match
  /** Settings of later overrides and of sets, which can replace `settings` for some calls. */
  readonly others: readonly Settings[]
}

/** Returns findings about policies that contradict each other, although each is valid by itself. */
function contradictions(config: Config): ConfigFinding[] {
  const { defaults, overrides, sets } = config.policies
  const alternatives = Object.values(sets)
  const places: Place[] = [
    { path: ['policies', 'defaults'], settings: defaults, others: [...overrides, ...alternatives] },
    ...overrides.map((settings, index) => ({
      path: ['policies', 'overrides', index],
      settings,
      match: settings.match,
      others: [...meeting(settings.match, overrides.slice(index + 1)), ...alternatives],
    })),
    ...Object.entries(sets).map(([name, settings]) => ({
      path: ['policies', 'sets', name],
      settings,
      others: [],
    })),
  ]
  return places.flatMap((place) => [
    ...uselessTimeout(place, config),
    ...uselessHedge(place, config),
    ...unknownFallback(place, config),
  ])
}

/** The default attempt timeout. It may be longer than a deadline, because the user did not choose it. */
const UNSAID_TIMEOUT_MS = 60_000

/**
 * Returns the settings of a policy that can apply at a place. If the place sets the policy: its own settings and
 * `others`. Otherwise: all settings of the policy in the config. A call's server, tool and arm decide among the
 * settings.
 */
function written<Name extends 'deadline' | 'attemptTimeout'>(
  name: Name,
  { settings, others }: Place,
  { defaults, overrides, sets }: Policies,
): NonNullable<Settings[Name]>[] {
  const all = name in settings ? [settings, ...others] : [defaults, ...overrides, ...Object.values(sets)]
  return all.flatMap((each) => each[name] ?? [])
}

/**
 * Returns each `timeout` of the servers that a place matches. It limits an attempt there, and its call gets at least
 * this deadline.
 */
const ownTimeouts = ({ match }: Place, { mcpServers }: Config) =>
  Object.entries(mcpServers).flatMap(([name, { timeout }]) =>
    glob(match?.server ?? '*')(name) ? (timeout ?? []) : [],
  )

const ofWhere = (name: 'deadline' | 'attemptTimeout', { path, settings }: Place) =>
  path[1] === 'defaults' || !(name in settings) ? 'of this config' : 'that is in force here'

/** Returns a finding if an attempt timeout is longer than every deadline that can apply, so it has no effect. */
function uselessTimeout(place: Place, config: Config): ConfigFinding[] {
  const { attemptTimeout } = place.settings
  if (!attemptTimeout || attemptTimeout.timeout === UNSAID_TIMEOUT_MS) return []
  // With `onProgress: extend`, progress renews the deadline, so it is no upper limit.
  const limits = written('deadline', place, config.policies).map((deadline) =>
    deadline === false || deadline.onProgress === 'extend' ? Infinity : deadline.total,
  )
  const total = limits.length === 0 ? Infinity : Math.max(...limits, ...ownTimeouts(place, config))
  if (attemptTimeout.timeout <= total) return []
  const message = `expected at most ${formatDuration(total)}, the longest deadline ${ofWhere('deadline', place)}, which covers all attempts; found ${formatDuration(attemptTimeout.timeout)}`
  return [{ path: [...place.path, 'attemptTimeout', 'timeout'], at: 'value', message }]
}

/** Returns a finding if a hedge starts later than every attempt timeout that can apply, so it has no effect. */
function uselessHedge(place: Place, config: Config): ConfigFinding[] {
  const { hedge } = place.settings
  if (!hedge || typeof hedge.after !== 'number') return []
  const limits = written('attemptTimeout', place, config.policies).map((limit) =>
    limit === false ? Infinity : limit.timeout,
  )
  const timeout = limits.length === 0 ? Infinity : Math.max(...limits, ...ownTimeouts(place, config))
  if (hedge.after < timeout) return []
  const message = `expected less than ${formatDuration(timeout)}, the longest attempt timeout ${ofWhere('attemptTimeout', place)}; found ${formatDuration(hedge.after)}`
  return [{ path: [...place.path, 'hedge', 'after'], at: 'value', message }]
}

function unknownFallback({ path, settings }: Place, { mcpServers }: Config): ConfigFinding[] {
  const server = settings.degrade ? settings.degrade.fallback?.server : undefined
  if (server === undefined || Object.hasOwn(mcpServers, server)) return []
  const message = `there is no server "${server}"${didYouMean(server, Object.keys(mcpServers))}`
  return [{ path: [...path, 'degrade', 'fallback', 'server'], at: 'value', message }]
}

/** Returns findings about faults that hit no server, or that cannot work with the servers that they hit. */
function faultFindings(
  { chaos, experiments, mcpServers }: Config,
  severity: 'error' | 'warning',
  tools: KnownTools = new Map(),
): ConfigFinding[] {
  if (chaos.faults.length === 0) return []
  const servers = Object.entries(mcpServers).map(([name, server]) => {
    const own = server.era === 'auto' ? undefined : server.era
    const era = server.type === 'sse' ? ('legacy' as const) : own
    const address = server.type === 'stdio' ? undefined : serverAddress(server.urls)
    const kind = { transport: server.type, era, address }
    return { name, kind, protected: server.protected, tools: tools.get(name) ?? [] }
  })
  return targetFindings(chaos.faults, { servers, arms: armNames(experiments) }, types)
    .filter((finding) => finding.severity === severity)
    .map(({ path, message }) => ({ path: ['chaos', ...path], at: 'value', message }))
}

/**
 * Returns findings about experiments: unknown servers or policy sets, equal names, calls of two experiments, and limits
 * too small to divide between arms.
 */
function experimentFindings(config: Config): ConfigFinding[] {
  const { experiments, policies, mcpServers } = config
  const names = Object.keys(mcpServers)
  const finding = (index: number, path: ConfigPath, message: string): ConfigFinding => ({
    path: ['experiments', index, ...path],
    at: 'value',
    message,
  })
  return experiments.flatMap((experiment, index) => {
    const { name, arms, match, active } = experiment
    const before = experiments.slice(0, index)
    const twin = before.findIndex((other) => other.name === name)
    const rival =
      active && before.find((other) => other.active && overlap(other, experiment, enabled(mcpServers)))
    const absent = match.server !== undefined && !names.some(glob(match.server)) ? match.server : undefined
    return [
      ...(twin === -1
        ? []
        : [finding(index, ['name'], `"${name}" is already the name of experiments[${twin}]`)]),
      ...(absent !== undefined
        ? [finding(index, ['match', 'server'], `"${absent}" matches no server${didYouMean(absent, names)}`)]
        : []),
      ...Object.entries(arms)
        .filter(([, set]) => set !== DEFAULT_SET && !Object.hasOwn(policies.sets, set))
        .map(([arm, set]) => {
          const sets = [DEFAULT_SET, ...Object.keys(policies.sets)].join(', ')
          return finding(index, ['arms', arm], `there is no policy set "${set}"; there are ${sets}`)
        }),
      ...(rival
        ? [finding(index, ['match'], `takes calls of "${rival.name}": a call can be in only one experiment`)]
        : []),
      ...indivisible(experiment, beside(experiment, experiments), config).map((message) =>
        finding(index, ['arms'], message),
      ),
    ]
  })
}

const enabled = (servers: Config['mcpServers']): string[] =>
  Object.entries(servers).flatMap(([name, { disabled }]) => (disabled ? [] : [name]))

/** Returns the experiments that run at the same time as `experiment`, including itself. */
function beside(experiment: Experiment, all: readonly Experiment[]): readonly Experiment[] {
  // An inactive experiment is started by hand, and then no other experiment may run at its servers.
  return experiment.active ? all.filter(({ active }) => active) : [experiment]
}

/**
 * Returns messages about limits of a server that are too small to divide between the arms of the experiments in
 * `together`.
 */
export function indivisible(
  experiment: Experiment,
  together: readonly Experiment[],
  { policies: { defaults, overrides, sets }, mcpServers }: Pick<Config, 'policies' | 'mcpServers'>,
): string[] {
  const divisions = sharesAt(experiment, together, enabled(mcpServers))
  const chosen: readonly PolicySettings[] = Object.values(experiment.arms).flatMap((set) =>
    Object.hasOwn(sets, set) ? sets[set]! : [],
  )
  const found = Object.entries<Pick<Policy<never>, 'indivisible'>>(registered).flatMap(([name, policy]) =>
    [...divisions].flatMap(([server, shares]) =>
      [
        ...settingsAt({ ...experiment.match, server }, name, defaults, overrides),
        ...chosen.map((set) => set[name]),
      ].flatMap((settings) =>
        settings === undefined || settings === false
          ? []
          : (policy.indivisible?.(settings as never, shares) ?? []),
      ),
    ),
  )
  return [...new Set(found)]
}

/** Returns a policy's settings that can apply to matching tool calls of a server, the last override first. */
function settingsAt(
  { server, tool }: { readonly server: string; readonly tool?: string | undefined },
  policy: string,
  defaults: PolicySettings,
  overrides: readonly Override[],
): unknown[] {
  const found: unknown[] = []
  for (const override of overrides.toReversed()) {
    const { match } = override
    const isMet = glob(match.server ?? '*')(server) && glob(match.method ?? '*')('tools/call')
    if (!(policy in override) || !isMet || !globsMeet(match.tool, tool)) continue
    found.push(override[policy])
    if (isForAll(match, server)) return found
  }
  return [...found, defaults[policy]]
}

/** Returns settings that are allowed but hardly intended. `variables`: the environment variables of the gateway. */
export function warningsOf(
  config: Config,
  {
    tools = new Map(),
    variables = {},
  }: { tools?: KnownTools | undefined; variables?: Locks['variables'] } = {},
): ConfigFinding[] {
  const offered = offeredTools(config, tools)
  const misnamed = idleTools(config, tools)
  // Drops other findings about names that `idleTools` has already reported.
  const unexplained = ({ path }: ConfigFinding) =>
    !misnamed.some((other) => other.path.join('\n') === path.join('\n'))
  return [
    ...noServers(config),
    ...leftOut(config),
    ...renamed(config),
    ...bareVariables(config),
    ...idleOverrides(config, offered).filter(unexplained),
    ...idleServers(config),
    ...misnamed,
    ...absentTools(config, tools).filter(unexplained),
    ...disabledOnly(config),
    ...unknownEffects(config),
    ...idleArms(config),
    ...sameArms(config),
    ...idleChaos(config, variables),
    ...faultFindings(config, 'warning', tools),
  ]
}

function noServers({ mcpServers }: Config): ConfigFinding[] {
  if (Object.values(mcpServers).some(({ disabled }) => !disabled)) return []
  return [{ path: ['mcpServers'], at: 'key', message: 'no server is configured, or all are disabled' }]
}

function leftOut({ mcpServers }: Config): ConfigFinding[] {
  const out = Object.entries(mcpServers).filter(([, { disabled }]) => disabled)
  // If all servers are disabled, `noServers` warns about it.
  if (out.length === Object.keys(mcpServers).length) return []
  return out.map(([name]) => ({
    path: ['mcpServers', name],
    at: 'key',
    message: 'is disabled, and left out',
  }))
}

/** Warns of servers that the gateway calls by another name, because their names in the config are invalid. */
function renamed({ mcpServers, gateway: { separator } }: Config): ConfigFinding[] {
  return Object.entries(mcpServers).flatMap(([name, { writtenName }]): ConfigFinding[] => {
    if (writtenName === undefined) return []
    const message = `is known as "${name}": at /mcp/${name}, and as ${name}${separator}… in the names of its tools`
    return [{ path: ['mcpServers', name], at: 'key', message }]
  })
}

/** Warns of values such as `$NAME`, which only Gemini CLI interpolates. */
function bareVariables({ mcpServers }: Config): ConfigFinding[] {
  return Object.entries(mcpServers).flatMap(([server, entry]) => {
    const [block, held] = entry.type === 'stdio' ? ['env', entry.env] : ['headers', entry.headers]
    return Object.entries(held).flatMap(([key, value]): ConfigFinding[] => {
      if (!/^(?:\w+ )?\$[A-Z][A-Z0-9_]*$/.test(value)) return []
      const message = 'holds a $NAME, which is not expanded; write ${NAME} for a variable'
      return [{ path: ['mcpServers', server, block, key], at: 'value', message }]
    })
  })
}
