import { policies } from '../../src/policies/index.ts'
import { oneServer, type GatewayConfig, type Subject } from '../subjects.ts'
import type { Cell } from './cells.ts'

/** A rate above any load of this benchmark: checked at every request, never exceeded. */
const OUT_OF_REACH = { rate: '1000000/s', burst: 1_000_000 }

/** From this number of sessions on, the default bulkhead, of which a single tool gets half, would make calls wait. */
const ROOMY_SESSIONS = 32

/** The server as a child process of its caller. */
export interface StdioServer {
  readonly command: string
  readonly args: readonly string[]
}

/** Returns a row of Breakwater for a cell: limits that would refuse the load are raised, everything else stays. */
export function inCell(subject: Subject, cell: Cell, stdio: StdioServer): Subject {
  const { middle } = subject
  const adapted = { ...subject, era: cell.era === 'modern' ? cell.era : subject.era }
  if (typeof middle === 'string') return adapted
  return { ...adapted, middle: (collector) => underLoad(middle(collector), cell, stdio) }
}

export function underLoad(config: GatewayConfig, cell: Cell, stdio: StdioServer): GatewayConfig {
  return {
    ...config,
    gateway: { limits: { perSession: OUT_OF_REACH, perTenant: OUT_OF_REACH } },
    ...(cell.upstream === 'stdio' && { mcpServers: { upstream: stdio } }),
    ...(cell.sessions > ROOMY_SESSIONS && { policies: withSlots(config.policies, 4 * cell.sessions) }),
  }
}

function withSlots(config: unknown, concurrent: number): object {
  const given = (config ?? {}) as { readonly defaults?: Readonly<Record<string, unknown>> }
  if (given.defaults?.bulkhead === false) return given
  return { ...given, defaults: { ...given.defaults, bulkhead: { concurrent } } }
}

/**
 * Settings under which a policy works on every call of the load and ends none, for policies whose defaults differ or
 * are missing. Other policies are measured with their defaults.
 */
const settings: Readonly<Record<string, unknown>> = {
  degrade: { lastKnownGood: {} },
  hedge: { after: '10s' },
  rateLimit: { rate: '1000000/s' },
  adaptiveConcurrency: { initial: 200, min: 200, max: 200 },
}

/** Turns every policy off except the named policy; without a name turns all off. */
export function onlyPolicy(name?: string): GatewayConfig {
  const defaults = Object.keys(policies).map((policy) => [
    policy,
    policy === name && (settings[policy] ?? {}),
  ])
  return {
    policies: {
      defaults: Object.fromEntries(defaults) as object,
      // Some policies work only on read-only calls.
      overrides: [{ match: {}, effect: 'read_only' }],
    },
  }
}

/** The reference row for policies, then a row for each policy, in their order. */
export const policyRows: readonly Subject[] = [
  oneServer('no-policy', 'no policy', onlyPolicy()),
  ...Object.keys(policies).map((name) => oneServer(name, name, onlyPolicy(name))),
]
