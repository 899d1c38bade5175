import { policies } from '../src/policies/index.ts'
import type { Era } from './session.ts'

/** The process between the load and the upstream: nothing, the floor, or Breakwater under the returned config. */
export type Middle = 'nothing' | 'floor' | ((collector: string) => GatewayConfig)

/** Blocks of a config file, added to a config with only the upstream. */
export type GatewayConfig = Readonly<Record<string, unknown>>

/** A row of the table: one way from the load to the upstream. */
export interface Subject {
  /** Argument of `--only`. */
  readonly name: string
  readonly title: string
  readonly middle: Middle
  readonly path: string
  /** The upstream's `echo`, as named at the path. */
  readonly tool: string
  readonly era: Era
  /** The `main.js` of the Breakwater in the middle; default: the packed program. */
  readonly main?: string
}

const direct: Subject = {
  name: 'direct',
  title: 'direct',
  middle: 'nothing',
  path: '/mcp',
  tool: 'echo',
  era: 'legacy',
}

const floor: Subject = {
  name: 'floor',
  title: 'floor (byte proxy)',
  middle: 'floor',
  path: '/mcp',
  tool: 'echo',
  era: 'legacy',
}

/** One server's own endpoint: names pass unchanged. */
export function oneServer(
  name: string,
  title: string,
  config: GatewayConfig | ((collector: string) => GatewayConfig) = {},
  era: Era = 'legacy',
): Subject {
  const middle = typeof config === 'function' ? config : () => config
  return { name, title, middle, path: '/mcp/upstream', tool: 'echo', era }
}

/** The endpoint of all servers: names carry their server. */
function aggregate(name: string, title: string): Subject {
  return { name, title, middle: () => ({}), path: '/mcp', tool: 'upstream__echo', era: 'legacy' }
}

/** No policies: the reference for the cost of the default policies. */
const noPolicies: GatewayConfig = {
  policies: { defaults: Object.fromEntries(Object.keys(policies).map((name) => [name, false])) },
}

/** Faults that never match a call: the cost of matching while armed, and of their presence while disarmed. */
const chaos = (enabled: boolean): GatewayConfig => ({
  chaos: {
    enabled,
    persist: true,
    faults: Array.from({ length: 20 }, (_, index) => ({
      name: `none-${index}`,
      type: 'conn.refused',
      rate: 1,
      ttl: '1h',
      match: { tool: `none_${index}_*` },
    })),
  },
})

/** Settings for spans of every tenth call. Metrics are always on. */
const spans = (collector: string): GatewayConfig => ({
  telemetry: { traces: { endpoint: collector, sample: 0.1 } },
})

/** Settings for spans and log lines of every tenth call. */
const traced = (collector: string): GatewayConfig => ({
  telemetry: { traces: { endpoint: collector, sample: 0.1 }, accessLog: { sample: 0.1 } },
})

/**
 * Every call is in an arm of an experiment, between the default policies and a set of the same settings under another
 * name. Each arm has enough slots for the load: waiting is no cost of the experiment.
 */
const inArms: GatewayConfig = {
  policies: { defaults: { bulkhead: { concurrent: 512 } }, sets: { same: {} } },
  experiments: [{ name: 'bench', arms: { control: 'default', treatment: 'same' } }],
}

/** Every row, in measuring order. Add an entry for a further variant of the gateway. */
export const subjects: readonly Subject[] = [
  direct,
  floor,
  oneServer('server', 'Breakwater /mcp/{server}'),
  oneServer('bare', 'no policies /mcp/{server}', noPolicies),
  oneServer('disarmed', 'disarmed /mcp/{server}', chaos(false)),
  oneServer('armed', 'armed /mcp/{server}', chaos(true)),
  oneServer('experiment', 'in arms /mcp/{server}', inArms),
  oneServer('spans', 'spans /mcp/{server}', spans),
  oneServer('traced', 'traced /mcp/{server}', traced),
  aggregate('aggregate', 'Breakwater /mcp'),
  oneServer('modern', 'modern /mcp/{server}', {}, 'modern'),
]

export const OTHER = '-other'

export function ofOther(subject: Subject, main: string): Subject {
  return { ...subject, name: subject.name + OTHER, title: `the other's ${subject.title}`, main }
}
