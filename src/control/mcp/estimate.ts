import type { Spec } from '../../experiments/guarded/spec.ts'
import { wilsonInterval } from '../../experiments/statistics/proportions.ts'
import { glob } from '../../mesh/match.ts'
import type { Operations } from './tool.ts'
import { quoted } from './untrusted.ts'

const unknown = 'unknown' as const

/**
 * Estimates the effect of a run from the traffic of the last 15 minutes. Without traffic, the figures are `unknown`.
 * `predicted` assumes that each fault fails its call. The true error ratio is lower for delays, and where policies
 * contain the faults.
 */
export function estimateOf(
  spec: Spec,
  {
    guarded,
    traffic,
    live,
    clock,
    history,
  }: Pick<Operations, 'guarded' | 'traffic' | 'live' | 'clock' | 'history'>,
) {
  const { targets } = guarded.plan(spec, { by: 'estimate', approvedBy: undefined, firstStage: 0 })
  const hit = new Set(targets.servers.flatMap(({ name, hit }) => hit.map((tool) => `${name} ${tool}`)))
  const recent = traffic.of((server, tool) => hit.has(`${server} ${tool}`))
  const last = spec.stages.at(-1)!.share
  // A call meets a fault unless each fault misses the call.
  const rate = 1 - spec.faults.reduce((missed, fault) => missed * (1 - fault.rate), 1)
  const now = clock.wall()
  const effectOf = (server: string, tool: string) =>
    live.current.mesh.effectOf({ server, method: 'tools/call', tool })
  const writeTools = targets.servers.flatMap(({ name, hit }) =>
    hit.filter((tool) => effectOf(name, tool) !== 'read_only').map((tool) => `${name}/${tool}`),
  )
  const isTarget = glob(spec.targets.server)
  const addresses = new Set(
    [...live.current.servers.values()]
      .filter(({ name }) => isTarget(name))
      .map(({ config }) => addressOf(config)),
  )
  const neighbours = [...live.current.servers.values()]
    .filter(({ name, config }) => !isTarget(name) && addresses.has(addressOf(config)))
    .map(({ name }) => name)
  const missing = recent === undefined ? ['hitsPerMinute', 'tasks', 'tenants', 'predicted'] : []
  const earlier = history
    .list()
    .find((run) => run.plan === spec.name && run.state !== 'running' && run.injected > 0)
  return {
    basis:
      recent === undefined
        ? { calls: 0 }
        : {
            from: new Date(now - recent.minutes * 60_000).toISOString(),
            to: new Date(now).toISOString(),
            calls: recent.figures.calls,
            callsPerMinute: recent.perMinute,
          },
    hitsPerMinute: recent === undefined ? unknown : Math.round(recent.perMinute * last * rate * 10) / 10,
    tasks: recent === undefined ? unknown : recent.tasks,
    tenants: recent === undefined ? unknown : recent.tenants,
    writeTools: writeTools.length,
    untrusted: { writeTools: writeTools.slice(0, 32).map(quoted) },
    neighbours: neighbours.slice(0, 16),
    predicted: recent === undefined ? unknown : predictedOf(recent.figures, rate),
    ...(earlier !== undefined && {
      lastRun: { run: earlier.run, state: earlier.state, injected: earlier.injected },
    }),
    unknown: missing,
  }
}

/**
 * Returns the error ratio of the treatment if each hit call fails. The interval follows from the 95 % interval of the
 * recent error ratio.
 */
function predictedOf({ calls, failed }: { calls: number; failed: number }, rate: number) {
  const worst = (ratio: number) => Math.round((ratio + (1 - ratio) * rate) * 1_000) / 1_000
  const { low, high } = wilsonInterval({ successes: failed, units: calls }, 0.05)
  return { errorRatioIfAllSurface: worst(failed / calls), interval: [worst(low), worst(high)] }
}

const addressOf = (config: {
  readonly type: string
  readonly urls?: readonly string[]
  readonly command?: string
}) => (config.urls === undefined ? `process ${config.command ?? ''}` : new URL(config.urls[0]!).host)
