import { policies } from '../src/policies/index.ts'
import type { Era } from './session.ts'

/** What stands between the load and the upstream: nothing, the floor, or Breakwater under the config that it makes. */
export type Middle = 'nothing' | 'floor' | ((collector: string) => GatewayConfig)

/** Blocks of a config file, laid over one that has nothing but the upstream in it. */
export type GatewayConfig = Readonly<Record<string, unknown>>

/** A row of the table: one way from the load to the upstream. */
export interface Subject {
  /** What `--only` calls it. */
  readonly name: string
  readonly title: string
  readonly middle: Middle
  /** Path to load. */
  readonly path: string
  /** The upstream's `echo`, as that path calls it. */
  readonly tool: string
  /** How the load speaks. */
  readonly era: Era
  /** The `main.js` of Breakwater that is to stand in the middle, unless it is the one that is packed. */
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

/** One server's own endpoint: names pass as they are. */
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

/** No policy at all: what those that are in force by default cost shows against it. */
const noPolicies: GatewayConfig = {
  policies: { defaults: Object.fromEntries(Object.keys(policies).map((name) => [name, false])) },
}

/** Faults that never meet a call: what looking for them costs while they are armed, and what their being there else. */
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

/** Metrics are always there; on top of them, of every tenth call the spans. */
const spans = (collector: string): GatewayConfig => ({
  telemetry: { traces: { endpoint: collector, sample: 0.1 } },
})

/** And a line in the log. */
const traced = (collector: string): GatewayConfig => ({
  telemetry: { traces: { endpoint: collector, sample: 0.1 }, accessLog: { sample: 0.1 } },
})

/**
 * Every call is in an arm of an experiment, between the default policies and a set of the same settings under another name.
 * Each arm has as many slots as the load needs: waiting for one is no cost of the experiment.
 */
const inArms: GatewayConfig = {
  policies: { defaults: { bulkhead: { concurrent: 512 } }, sets: { same: {} } },
  experiments: [{ name: 'bench', arms: { control: 'default', treatment: 'same' } }],
}

/** Every row, in the order in which a round measures them. A further variant of the gateway is a further entry. */
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

/** How the name of a row of another build ends. */
export const OTHER = '-other'

/** A row as another build of Breakwater would have it. */
export function ofOther(subject: Subject, main: string): Subject {
  return { ...subject, name: subject.name + OTHER, title: `the other's ${subject.title}`, main }
}
