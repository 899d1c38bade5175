import { formatDuration } from '../../units/duration.ts'
import { didYouMean } from '../../units/suggest.ts'
import { glob, isGlob, matcher } from '../../mesh/match.ts'
import { refusalOf, type FaultType, type ServerKind } from '../fault.ts'
import type { FaultRegistry } from '../faults/index.ts'
import type { Fault } from './common.ts'

/** A problem of a plan, and its place in the block `chaos`. */
export interface PlanFinding {
  /** A plan with an `error` cannot be used; a `warning` is about a part without effect. */
  readonly severity: 'error' | 'warning'
  readonly path: readonly (string | number)[]
  readonly message: string
}

/** A possible target server of a plan. */
interface PlanServer {
  readonly name: string
  readonly kind: ServerKind
  /** True when no fault may hit the server; default false. */
  readonly protected?: boolean
  /** The server's own tool names; absent or empty while unknown. */
  readonly tools?: readonly string[]
  /** Returns true for a tool known to be read-only; absent when the gateway cannot know. */
  readonly isReadOnly?: (tool: string) => boolean
}

/** The possible targets of a plan. */
export interface PlanTargets {
  readonly servers: readonly PlanServer[]
  /** The arms of the existing experiments, as `experiment/arm`. */
  readonly arms: readonly string[]
}

/** The methods a type can hit. */
export const methodsOf = (type: FaultType<unknown> | undefined): readonly string[] =>
  type?.methods ?? ['tools/call']

/** Methods the gateway itself calls on servers; the gateway itself answers agents' calls of these methods. */
const ofGateway = new Set(['initialize', 'server/discover', 'ping', 'subscriptions/listen'])

export const isOfGateway = (method: string): boolean => ofGateway.has(method)

/** Returns the findings visible only in the plan as a whole, not in a single field. */
export function contradictions(
  { faults, maxTtl }: { readonly faults: readonly Fault[]; readonly maxTtl: number },
  registry: FaultRegistry,
): PlanFinding[] {
  const names = new Map<string, number>()
  return faults.flatMap((fault, index) => {
    const findings = faultFindings(fault, maxTtl, registry)
    const twin = names.get(fault.name)
    if (twin === undefined) names.set(fault.name, index)
    else findings.push(error(['name'], `"${fault.name}" is already the name of faults[${twin}]`))
    return at(index, findings)
  })
}

/** Returns the contradictions within a single fault; paths are relative to the fault. */
export function faultFindings(fault: Fault, maxTtl: number, registry: FaultRegistry): PlanFinding[] {
  const findings: PlanFinding[] = []
  if (fault.ttl > maxTtl) {
    const message = `${formatDuration(fault.ttl)} is more than chaos.maxTtl (${formatDuration(maxTtl)})`
    findings.push(error(['ttl'], message))
  }
  const methods = methodsOf(registry[fault.type])
  const { method, tool } = fault.match ?? {}
  if (method !== undefined && !methods.some(glob(method))) {
    findings.push(error(['match', 'method'], `${fault.type} can hit ${methods.join(', ')}, not "${method}"`))
  } else if (
    tool !== undefined &&
    !methods.some((name) => name === 'tools/call' && glob(method ?? '*')(name))
  ) {
    findings.push(error(['match', 'tool'], 'never matches: only calls of the method tools/call have a tool'))
  }
  if (fault.side === 'upstream' && methods.every(isOfGateway)) {
    for (const field of ['tenant', 'header', 'arm'] as const)
      if (fault.match?.[field] !== undefined)
        findings.push(
          error(['match', field], 'never matches: the gateway sends this request itself, for no agent'),
        )
  }
  const { onCall, afterCalls = 0, everyNth = 1, window } = fault.when ?? {}
  if (onCall !== undefined && (onCall <= afterCalls || onCall % everyNth !== 0)) {
    const other = onCall <= afterCalls ? `afterCalls ${afterCalls}` : `everyNth ${everyNth}`
    findings.push(error(['when', 'onCall'], `never holds: call ${onCall} is excluded by ${other}`))
  }
  if (window !== undefined && window.from >= fault.ttl) {
    const message = `never holds: the fault already ends after its ttl of ${formatDuration(fault.ttl)}`
    findings.push(error(['when', 'window', 'from'], message))
  }
  if (fault.when?.burst !== undefined && fault.when.ramp !== undefined) {
    const message = 'not together with when.burst: the frequency of bursts is constant'
    findings.push(error(['when', 'ramp'], message))
  }
  const length = fault.when?.burst?.meanLength
  if (length !== undefined && fault.rate < 1 && fault.rate > length / (length + 1)) {
    const most = (length / (length + 1)).toFixed(3)
    const message = `bursts of mean ${length} with pauses between them allow a rate up to ${most}; found ${fault.rate}`
    findings.push(error(['rate'], message))
  }
  return findings
}

/**
 * Returns findings about protected servers a fault names as target or destination; paths are within the fault. A glob
 * that would match a protected server does not count as naming: the engine skips the server.
 */
export function protectedFindings(
  fault: Fault,
  isProtected: (server: string) => boolean,
  registry: FaultRegistry,
): PlanFinding[] {
  const message = (server: string) =>
    `"${server}" is protected (mcpServers.${server}.protected): no fault may`
  const aim = fault.match?.server
  const other = registry[fault.type]?.sendsTo?.(fault)
  return [
    ...(aim !== undefined && !isGlob(aim) && isProtected(aim)
      ? [error(['match', 'server'], `${message(aim)} aim at it`)]
      : []),
    ...(other !== undefined && isProtected(other)
      ? [error(['type'], `${message(other)} send calls to it`)]
      : []),
  ]
}

/** Returns findings about faults that match no present server or arm, or cannot work with the servers they match. */
export function targetFindings(
  faults: readonly Fault[],
  { servers, arms }: PlanTargets,
  registry: FaultRegistry,
): PlanFinding[] {
  return faults.flatMap((fault, index) => {
    const { arm } = fault.match ?? {}
    if (arm !== undefined && !arms.some(armMatcher(arm))) {
      const known = arms.length === 0 ? 'there is no experiment' : `there are ${arms.join(', ')}`
      return at(index, [error(['match', 'arm'], `"${arm}" matches no arm of an experiment: ${known}`)])
    }
    const spared = new Set(servers.filter((server) => server.protected === true).map(({ name }) => name))
    const refused = protectedFindings(fault, (name) => spared.has(name), registry)
    if (refused.length > 0) return at(index, refused)
    const aim = fault.match?.server
    const holds = matcher({ server: aim })
    const matched = servers.filter(({ name }) => holds(name, '', undefined))
    const hit = matched.filter(({ name }) => !spared.has(name))
    if (hit.length === 0) {
      if (matched.length > 0) return at(index, [onlyProtected(aim)])
      return aim === undefined
        ? []
        : at(index, [
            error(
              ['match', 'server'],
              `"${aim}" matches no server${didYouMean(
                aim,
                servers.map(({ name }) => name),
              )}`,
            ),
          ])
    }
    const idle = at(index, [
      ...neverDrawn(fault),
      ...unknownTool(fault.match?.tool, hit),
      ...onlyWrites(fault, hit, registry),
    ])
    // On side client, the gateway acts as the server, so the kind of the real server does not matter.
    if (fault.side === 'client') return idle
    const refusals = hit.flatMap(({ name, kind }) => {
      const type = registry[fault.type]
      const why = type && refusalOf(type, kind)
      return why === undefined ? [] : [`${name}: ${why}`]
    })
    if (refusals.length === 0) return idle
    const message = `${fault.type} cannot work with ${refusals.join('; ')}`
    // A warning suffices when the fault works with some servers: the journal reports calls to the other servers as
    // `refused`.
    return at(index, [
      { severity: refusals.length < hit.length ? 'warning' : 'error', path: ['type'], message },
    ])
  })
}

/** Warns about a fault whose rate is 0 at all times. */
function neverDrawn({ rate, when }: Fault): PlanFinding[] {
  if (rate > 0 || (when?.ramp?.from ?? 0) > 0) return []
  return [{ severity: 'warning', path: ['rate'], message: 'a rate of 0 hits no call' }]
}

/** Warns about a tool none of the servers has, as far as their tools are known. */
function unknownTool(tool: string | undefined, servers: readonly PlanServer[]): PlanFinding[] {
  if (tool === undefined || servers.some(({ tools = [] }) => tools.length === 0 || tools.some(glob(tool))))
    return []
  const names = servers.map(({ name }) => name).join(', ')
  const hint = didYouMean(
    tool,
    servers.flatMap(({ tools = [] }) => tools),
  )
  const message = `"${tool}" matches no tool of ${names}: the fault hits nothing until there is such a tool${hint}`
  return [{ severity: 'warning', path: ['match', 'tool'], message }]
}

/** Returns true for a fault that hits tool calls, but only calls of tools known to be read-only. */
export function sparesWrites({ type: name, match, allowWrites }: Fault, registry: FaultRegistry): boolean {
  const type = registry[name]
  const isForTools = methodsOf(type).includes('tools/call') && glob(match?.method ?? '*')('tools/call')
  return isForTools && !allowWrites && type?.withholds !== true
}

/**
 * Warns about a fault without `allowWrites` that matches no read-only tool, once all matched servers' tools are known.
 */
function onlyWrites(fault: Fault, servers: readonly PlanServer[], registry: FaultRegistry): PlanFinding[] {
  if (!sparesWrites(fault, registry)) return []
  const holds = glob(fault.match?.tool ?? '*')
  const matched = servers.flatMap(({ tools = [] }) => tools.filter(holds))
  const mayBeHit = ({ tools = [], isReadOnly }: PlanServer) =>
    tools.length === 0 || isReadOnly === undefined || tools.some((tool) => holds(tool) && isReadOnly(tool))
  if (matched.length === 0 || servers.some(mayBeHit)) return []
  const names = servers.map(({ name }) => name).join(', ')
  const message = `hits no tool call: no matching tool of ${names} is known to be read-only`
  return [{ severity: 'warning', path: ['allowWrites'], message }]
}

/** Returns a finding about a fault that matches only protected servers. `aim`: the fault's glob over servers. */
function onlyProtected(aim: string | undefined): PlanFinding {
  if (aim === undefined)
    return { severity: 'warning', path: ['type'], message: 'hits nothing: all servers are protected' }
  return error(['match', 'server'], `"${aim}" matches protected servers only`)
}

/** Compiles a glob over arms: by the arm's name, or by experiment and arm, as in `canary/treatment`. */
export function armMatcher(pattern: string): (arm: string) => boolean {
  const holds = glob(pattern)
  return (arm) => arm !== '' && (holds(arm) || holds(arm.slice(arm.indexOf('/') + 1)))
}

const error = (path: PlanFinding['path'], message: string): PlanFinding => ({
  severity: 'error',
  path,
  message,
})

const at = (index: number, findings: readonly PlanFinding[]): PlanFinding[] =>
  findings.map((finding) => ({ ...finding, path: ['faults', index, ...finding.path] }))
