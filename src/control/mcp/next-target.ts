import { faults } from '../../chaos/faults/index.ts'
import type { Family } from '../../chaos/fault.ts'
import { numbered } from '../../units/numbered.ts'
import type { RunRow } from './run-history.ts'
import type { Operations } from './tool.ts'

/** Maximum age of a run that counts as evidence, in milliseconds: 90 days. */
const PROVEN_MS = 90 * 86_400_000

/**
 * Suggested faults: family, type, and fields of the type. Each type works at every server. The most frequent failures
 * in production come first.
 */
const probes: readonly (readonly [Family, string, object])[] = [
  ['connection', 'conn.latency', { distribution: { kind: 'uniform', min: '500ms', max: '2s' } }],
  ['rpc', 'rpc.error', {}],
  ['limit', 'limit.429', {}],
  ['result', 'result.empty', {}],
]

export interface Suggestion {
  readonly kind: 'gap' | 'precursor' | 'finding'
  readonly server: string
  readonly family: string
  readonly reason: string
  /** Number of incidents, calls or simulated runs behind the reason. */
  readonly n: number
  readonly spec: object
  /** Single changes of policies that contain the faults of a finding. */
  readonly containedBy?: readonly string[]
}

/** Returns the completed runs of the last 90 days that injected faults. */
export function provenRuns({ history, clock }: Pick<Operations, 'history' | 'clock'>): readonly RunRow[] {
  const since = new Date(clock.wall() - PROVEN_MS).toISOString()
  return history
    .list()
    .filter(
      ({ state, requestedAt, injected }) => state === 'completed' && injected > 0 && requestedAt > since,
    )
}

/**
 * Returns the pairs of server and fault family that no completed run tested in the last 90 days. Omits servers without
 * traffic. The busiest servers come first.
 */
export function gapsIn(operations: Operations, only: string | undefined): Suggestion[] {
  const { live, traffic } = operations
  const proven = provenRuns(operations)
  const servers = [...live.current.servers.values()]
    .filter((server) => !server.protected && (only === undefined || server.name === only))
    .map(({ name }) => ({ name, recent: traffic.of((server) => server === name) }))
    .filter(({ recent }) => recent !== undefined)
    .sort((a, b) => b.recent!.perMinute - a.recent!.perMinute)
  return servers.flatMap(({ name, recent }) =>
    probes.flatMap(([family, type, fields]): Suggestion[] => {
      if (!Object.hasOwn(faults, type)) return []
      const isProven = proven.some(
        (run) => run.servers.includes(name) && run.faults.some((tested) => faults[tested]?.family === family),
      )
      if (isProven) return []
      return [
        {
          kind: 'gap',
          server: name,
          family,
          reason: `${name} has ${numbered(recent!.perMinute, 'call')} a minute; no completed run in 90 days injected ${family} faults`,
          n: recent!.figures.calls,
          spec: specFor(name, family, type, fields),
        },
      ]
    }),
  )
}

/** Returns servers with a signal that is active now and was active in the 15 minutes before earlier incidents. */
export function precursorsIn({ live, signals, history }: Operations, only: string | undefined): Suggestion[] {
  return signals.precursors().flatMap(({ server, signal, preceded, incidents }): Suggestion[] => {
    const found = live.current.servers.get(server)
    if (found === undefined || found.protected || (only !== undefined && server !== only)) return []
    const tested = history
      .list()
      .some(
        (run) =>
          run.servers.includes(server) && run.faults.includes('conn.latency') && run.state === 'completed',
      )
    const before = tested ? '; a run with latency was completed before' : ''
    return [
      {
        kind: 'precursor',
        server,
        family: 'connection',
        reason: `${server}: ${signal}, now and before ${preceded} of ${numbered(incidents, 'incident')}${before}`,
        n: preceded,
        spec: specFor(server, 'connection', 'conn.latency', probes[0]![2]),
      },
    ]
  })
}

const specFor = (server: string, family: string, type: string, fields: object) => ({
  // A name has at most 40 characters, and each family of a server needs a unique name.
  name: `${server.slice(0, 39 - family.length)}-${family}`,
  owner: 'control MCP server',
  reason: `Find out how agents fare when ${server} has a fault of the family ${family}.`,
  hypothesis: { steadyState: ['error_ratio < 1%'], during: ['error_ratio < 5%'] },
  targets: { server },
  faults: [{ name: family, type, rate: 0.5, ...fields }],
  stages: [{ share: 0.1, duration: '1m' }],
  gate: { rollbackOn: [{ metric: 'error_ratio', above: 0.05, for: '10s' }] },
})
