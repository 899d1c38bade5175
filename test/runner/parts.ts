/** Folders and files of tests, each by the beginning of its path below `test`. */
type Paths = readonly string[]

/** Parts of all tests, by name. A file belongs to the first part that names the file. */
export const parts = {
  /** Simulated traffic, searches and statistics: tests that only compute. */
  simulated: [
    'commands/docs/blast-radius',
    'commands/docs/defaults',
    'commands/scenarios-hold',
    'commands/search',
    'commands/study',
    'commands/sweep',
    'experiments/statistics/',
    'sim/',
  ],
  /** Experiments, drills and outages at full length: tests that wait and count for minutes. */
  slow: [
    'drills/deaf-clients',
    'drills/stalled',
    'drills/vanishing',
    'e2e/chaos/kill-restart',
    'e2e/chaos/list-cells',
    'e2e/compare',
    'e2e/counting/',
    'e2e/control-mcp/answers',
    'e2e/control-mcp/malformed',
    'e2e/control-mcp/red-team',
    'e2e/deadlines-everywhere',
    'e2e/deaf-client',
    'e2e/demo-live',
    'e2e/experiments.',
    'e2e/experiments/guarded-',
    'e2e/experiments/library',
    'e2e/flapping',
    'e2e/health/',
    'e2e/hostile-peers/floods',
    'e2e/hung-tool',
    'e2e/live-equals-simulated',
    'e2e/neighbours',
    'e2e/package',
    'e2e/recovery-under-load',
    'e2e/replay',
    'e2e/replicas-return',
    'e2e/retry-storm',
    'e2e/scenario',
    'e2e/slow-replica',
  ],
  /** Tests in one process, without sockets and child processes. They check other release lines of Node. */
  core: [
    'access/',
    'approval/',
    'chaos/',
    'claims/',
    'config/',
    'control/',
    'downstream/',
    'evidence/',
    'experiments/',
    'gamedays/',
    'gateway/',
    'judge/',
    'mesh/',
    'policies/',
    'protocol/',
    'registry/',
    'routes/',
    'telemetry/',
    'units/',
    'upstreams/',
  ],
  /** Bytes: each fault at each place, the recorded exchanges, every client with every server, properties of codecs. */
  wire: ['wire/', 'exchanges/', 'interop/', 'contract/', 'properties/'],
  /** Faults, and the policies that contain faults, from outside. */
  chaos: ['e2e/chaos/'],
  /** Hostile agents and servers, floods, drills. */
  hostile: ['e2e/hostile-peers/', 'e2e/floods', 'e2e/neighbours', 'e2e/deaf-client', 'drills/'],
  /** Everything else from outside. */
  e2e: ['e2e/'],
  /** Commands, pages, examples, dashboards, benchmarks, and the sources themselves. */
  tools: [
    'bench/',
    'bundle',
    'commands/',
    'conformance/',
    'deploy/',
    'docs/',
    'examples/',
    'load/',
    'soak/',
    'source/',
  ],
} as const satisfies Readonly<Record<string, Paths>>

export type Part = keyof typeof parts

/** Parts with the longest files, which mostly wait. */
export const waiting: readonly Part[] = ['slow']

/** The parts whose files keep a core busy. */
export const computing: readonly Part[] = ['simulated', 'core']

export function partOf(file: string): Part {
  const found = Object.entries(parts).find(([, paths]) => paths.some((path) => file.startsWith(path)))
  if (found === undefined) throw new Error(`no part has ${file}: see test/runner/parts.ts`)
  return found[0] as Part
}

/** Minutes of the quick tests on two calm cores, measured. */
export const QUICK_MINUTES = 4

/** The tests of `npm test`: each policy, fault family, transport, era and command once from outside. */
export const quick: { readonly files: Paths; readonly without: Paths; readonly leavesOut: string } = {
  files: [
    ...parts.core,
    'exchanges/',
    'contract/',
    'interop/matrix',
    'interop/economy',
    'properties/llhttp/',
    'wire/cells',
    'e2e/admin',
    'e2e/bound',
    'e2e/catalog',
    'e2e/chaos/contained',
    'e2e/chaos/guard',
    'e2e/chaos/kill.',
    'e2e/commands',
    'e2e/control-token.',
    'e2e/dual-era',
    'e2e/exactly-once',
    'e2e/experiments/guarded.',
    'e2e/gate',
    'e2e/judge',
    'e2e/quotas',
    'e2e/mesh-',
    'e2e/modern-',
    'e2e/proxy.',
    'e2e/reload.',
    'e2e/shutdown',
    'e2e/startup',
    'e2e/streams',
    'e2e/tracing.',
    'e2e/wrap-http',
    'bundle',
    'commands/',
    'docs/',
    'load/',
    'source/',
  ],
  without: [
    'chaos/decide/call-bursts',
    'chaos/decide/determinism',
    'load/twins',
    'commands/docs/blast-radius',
    'commands/docs/defaults',
    'commands/scenarios-hold',
    'commands/search',
    'commands/study',
    'commands/sweep',
    'config/load-apart',
    'e2e/mesh-asking',
    'e2e/mesh-blame',
    'e2e/modern-failures',
    'experiments/statistics/',
    'gateway/signals',
    'telemetry/tracing/collector',
    'upstreams/stdio-crash',
    'upstreams/stdio-load',
    'upstreams/wire-shaper',
  ],
  leavesOut:
    'simulations, hostile peers, drills, scenarios, most of what is seen from outside a second time, and dashboards',
}
