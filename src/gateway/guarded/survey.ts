import type { Controller } from '../../chaos/control/controller.ts'
import { faults as types } from '../../chaos/faults/index.ts'
import { contradictions, methodsOf, targetFindings } from '../../chaos/plan/checks.ts'
import type { Fault } from '../../chaos/plan/common.ts'
import { subjects } from '../../claims/subjects.ts'
import { formatPath } from '../../config/files/places.ts'
import { indivisible } from '../../config/issues/rules.ts'
import type { Config } from '../../config/schema/schema.ts'
import { meet } from '../../experiments/capacity.ts'
import type { Experiments } from '../../experiments/experiments.ts'
import { experimentOf } from '../../experiments/guarded/arms.ts'
import type { Survey } from '../../experiments/guarded/guarded.ts'
import type { Targets } from '../../experiments/guarded/record.ts'
import { hashOf, lengthOf, type Spec } from '../../experiments/guarded/spec.ts'
import { armName, experiment as experimentSchema } from '../../experiments/schema.ts'
import { glob, matcher } from '../../mesh/match.ts'
import type { Millis } from '../../mesh/clock.ts'
import { DEFAULT_SET, type MeshConfig, Settings } from '../../mesh/settings.ts'
import type { Live } from '../../mesh/live.ts'
import { longestOf } from '../../policies/deadline.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { Server } from '../../registry/server.ts'
import { formatDuration } from '../../units/duration.ts'
import { serverTargets } from '../chaos.ts'

export interface SurveyParts {
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
  readonly controller: Controller
  readonly experiments: Pick<Experiments, 'runs'>
  /** `gateway.environment` at the start. */
  readonly environment: string
}

/** Prefix for the names of a run's faults, because a plan may have a fault with the same name. */
const PREFIX = 'runtime-'

/** Returns the faults of a run, aimed at the treatment arm of its targets, for `ttl` milliseconds. */
export function aimed({ name, targets, faults }: Spec, ttl: number): Fault[] {
  return faults.map((fault) => {
    const match = { ...fault.match, server: targets.server, arm: armName(name, 'treatment') }
    return { ...(fault as unknown as Fault), name: `${PREFIX}${fault.name}`, match, ttl }
  })
}

/** Returns the targets of a spec's run in the current config, and the reasons against a run. */
export function survey(spec: Spec, parts: SurveyParts): Survey {
  const { live, controller, environment } = parts
  const { config, hash, servers } = live.current
  const targets = targetsOf(spec, [...servers.values()], environment)
  return {
    refusals: [
      ...environmentRefusals(spec, parts),
      ...targetRefusals(spec, targets, servers),
      ...idleRefusals(spec, targets),
      ...settingRefusals(spec, parts),
      ...idleRules(spec, targets, config.policies),
      ...occupiedBy(spec, targets, parts),
    ],
    doubts: doubtsAbout(spec, targets),
    targets,
    hashes: { config: hash, policies: hashOf(config.policies), faults: hashOf(spec.faults) },
    seed: String(controller.config.seed),
  }
}

/** Returns a hash of the parts of the config that must not change during a run. */
export function groundOf({ targets, faults, name }: Spec, { live }: Pick<SurveyParts, 'live'>): string {
  const { config } = live.current
  const isTarget = glob(targets.server)
  return hashOf({
    policies: config.policies,
    servers: Object.fromEntries(Object.entries(config.mcpServers).filter(([server]) => isTarget(server))),
    chaos: faults.length > 0 && [config.chaos.enabled, config.chaos.mode, config.chaos.seed],
    isTaken: config.experiments.some((other) => other.name === name),
  })
}

function targetsOf({ targets, faults }: Spec, servers: readonly Server[], environment: string): Targets {
  const [isServer, isTool] = [glob(targets.server), glob(targets.tool ?? '*')]
  const mayHit = faults.map(({ match, allowWrites }) => {
    const { tool, method } = (match ?? {}) as NonNullable<Fault['match']>
    return { holds: matcher({ tool, method }), writes: allowWrites === true }
  })
  const isHit = (server: Server, key: string) =>
    mayHit.some(
      ({ holds, writes }) => holds('', 'tools/call', key) && (writes || server.effectOf(key) === 'read_only'),
    )
  return {
    environment,
    servers: servers
      .filter(({ name }) => isServer(name))
      .map((server) => {
        const tools = server.entries('tools').flatMap(({ key }) => (isTool(key) ? key : []))
        return { name: server.name, tools, hit: tools.filter((key) => isHit(server, key)) }
      }),
  }
}

function environmentRefusals({ targets, faults }: Spec, { controller, environment }: SurveyParts): string[] {
  const refusal = controller.refusalOf(faults.length > 0)
  const refusals = refusal === undefined ? [] : [refusal]
  if (targets.environment !== undefined && targets.environment !== environment)
    refusals.push(
      `targets.environment is "${targets.environment}", but this gateway's environment is "${environment}"`,
    )
  return refusals
}

function targetRefusals(
  { targets }: Spec,
  { servers }: Targets,
  known: ReadonlyMap<string, Server>,
): string[] {
  if (servers.length === 0)
    return [
      `targets.server: "${targets.server}" matches no server; there are ${[...known.keys()].join(', ') || 'none'}`,
    ]
  const refusals = servers
    .filter(({ name }) => known.get(name)?.protected === true)
    .map(({ name }) => `server ${name} is protected: it is never a target`)
  if (servers.every(({ tools }) => tools.length === 0)) {
    const down = servers.filter(({ name }) => known.get(name)?.state !== 'up').map(({ name }) => name)
    const why = down.length === 0 ? '' : ` (${down.join(', ')} not up)`
    refusals.push(`targets.tool: "${targets.tool ?? '*'}" matches no tool of the targets${why}`)
  }
  return refusals
}

/** Returns refusals of faults that cannot hit any call. */
function idleRefusals({ faults }: Spec, { servers }: Targets): string[] {
  const hasTools = servers.some(({ tools }) => tools.length > 0)
  if (faults.length === 0 || !hasTools) return []
  if (servers.every(({ hit }) => hit.length === 0))
    return [
      'faults: no tool of the targets can be hit: "match" excludes all tools, or the tools are not known to be read-only and no fault says "allowWrites: true"',
    ]
  return faults.every(({ rate }) => rate === 0) ? ['faults: every fault has a rate of 0'] : []
}

function settingRefusals(spec: Spec, { live, controller }: SurveyParts): string[] {
  const { config, servers } = live.current
  const refusals: string[] = []
  const sets = [DEFAULT_SET, ...Object.keys(config.policies.sets)]
  for (const [arm, set] of Object.entries(spec.arms))
    if (!sets.includes(set))
      refusals.push(`arms.${arm}: there is no policy set "${set}"; there are ${sets.join(', ')}`)
  if (config.experiments.some(({ name }) => name === spec.name))
    refusals.push(`the config already has a comparison named "${spec.name}"`)
  if (refusals.length === 0) refusals.push(...indivisibleStages(spec, config))
  if (spec.faults.length === 0) return refusals
  const { maxTtl, mode } = controller.config
  if (mode === 'shadow') refusals.push('chaos.mode is shadow: nothing would be injected')
  const stagesMs = lengthOf(spec) - spec.baseline.duration
  if (stagesMs > maxTtl)
    refusals.push(
      `the stages take ${formatDuration(stagesMs)}, but chaos.maxTtl limits faults to ${formatDuration(maxTtl)}`,
    )
  for (const [index, { type }] of spec.faults.entries())
    if (!methodsOf(types[type]).includes('tools/call'))
      refusals.push(
        `faults[${index}].type: ${type} does not affect tool calls, and arms contain only tool calls`,
      )
  const planTargets = {
    servers: serverTargets(servers),
    arms: [armName(spec.name, 'treatment')],
  }
  const planned = aimed(spec, Math.min(stagesMs, maxTtl))
  const findings = [
    ...contradictions({ faults: planned, maxTtl }, types),
    ...targetFindings(planned, planTargets, types),
  ]
  for (const { severity, path, message } of findings)
    if (severity === 'error' && !path.includes('server')) refusals.push(`${formatPath(path)}: ${message}`)
  return refusals
}

/** Returns refusals of stages whose arms cannot divide a server's limits. */
function indivisibleStages(spec: Spec, config: Config): string[] {
  return spec.stages.flatMap(({ share }, index) => {
    const entry = experimentOf(spec, share)
    return indivisible(entry, [entry], config).map((why) => `stages[${index}]: ${why}`)
  })
}

/** Returns refusals of rules about durations above the deadline, because no call can take that long. */
function idleRules({ gate, arms }: Spec, targets: Targets, policies: MeshConfig): string[] {
  return gate.rollbackOn.flatMap(({ metric, above, of }, index) => {
    if (subjects[metric].unit !== 'ms') return []
    const most = longestMs(of === 'control' ? arms.control : arms.treatment, targets, policies)
    if (above < most) return []
    return `gate.rollbackOn[${index}].above: ${formatDuration(above)} is never exceeded: calls of ${of === 'control' ? 'the control' : 'the treatment'} end at their deadline of ${formatDuration(most)}`
  })
}

/** Returns the longest deadline of a policy set at the targets, in milliseconds; Infinity without a deadline. */
export function longestMs(set: string, { servers }: Targets, policies: MeshConfig): Millis {
  const settings = new Settings(policies)
  const deadlines = servers.flatMap(({ name, tools }) =>
    tools.map((tool) => {
      const [found] = settings.of('deadline', set, settings.appliedTo(name, 'tools/call', tool))
      return isObject(found) ? longestOf(found as Parameters<typeof longestOf>[0]) : Infinity
    }),
  )
  return deadlines.length === 0 ? Infinity : Math.max(...deadlines)
}

/** Returns sentences about experiments and faults already active at the targets. */
function occupiedBy(spec: Spec, targets: Targets, { live, controller, experiments }: SurveyParts): string[] {
  const names = targets.servers.map(({ name }) => name)
  const own = experimentSchema.parse({
    name: spec.name,
    arms: { a: 'a', b: 'b' },
    match: { server: spec.targets.server },
  })
  const all = Object.keys(live.current.config.mcpServers)
  const comparisons = experiments
    .runs()
    .filter(({ experiment, run }) => run !== undefined && run.end === undefined && meet(experiment, own, all))
    .map(({ experiment }) => `experiment "${experiment.name}" runs on these servers`)
  const armed = armedAt(names, controller).map((name) => `fault "${name}" is armed at these servers`)
  return [...comparisons, ...armed]
}

/** Returns the names of faults armed at any of these servers. */
export function armedAt(servers: readonly string[], controller: Pick<Controller, 'status'>): string[] {
  return controller
    .status()
    .faults.filter(({ armed, config }) => armed && servers.some(glob(config.match?.server ?? '*')))
    .map(({ name }) => name)
}

function doubtsAbout({ faults }: Spec, { servers }: Targets): string[] {
  const tools = servers.reduce((sum, server) => sum + server.tools.length, 0)
  const hit = servers.reduce((sum, server) => sum + server.hit.length, 0)
  if (faults.length === 0 || hit === tools) return []
  return [
    `faults hit ${hit} of ${tools} tools: "match" excludes the others, or the others are not known to be read-only and no fault says "allowWrites: true"`,
  ]
}
