/** Folders and files of tests, each by the beginning of its path below `test`. */
type Paths = readonly string[]

/** Parts of all tests, by name. A file belongs to the first part that names it, so that each belongs to one. */
export const parts = {
  /** Simulated traffic, searches and statistics: compute and touch nothing. */
  simulated: [
    'commands/docs/blast-radius',
    'commands/scenarios-hold',
    'commands/search',
    'commands/study',
    'commands/sweep',
    'experiments/statistics/',
    'sim/',
  ],
  /** One process without sockets or child processes: enough to see whether another line of Node behaves alike. */
  core: [
    'chaos/',
    'config/',
    'downstream/',
    'experiments/',
    'gateway/',
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
  /** Faults and the policies that contain them, from outside. */
  chaos: ['e2e/chaos/'],
  /** Hostile agents and servers, floods, drills. */
  hostile: ['e2e/hostile-', 'e2e/floods', 'e2e/neighbours', 'e2e/deaf-client', 'drills/'],
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
    'soak/',
    'source/',
  ],
} as const satisfies Readonly<Record<string, Paths>>

export type Part = keyof typeof parts

export function partOf(file: string): Part {
  const found = Object.entries(parts).find(([, paths]) => paths.some((path) => file.startsWith(path)))
  if (found === undefined) throw new Error(`no part has ${file}: see test/runner/parts.ts`)
  return found[0] as Part
}

/** Minutes that the quick tests take on two calm cores, measured. */
export const QUICK_MINUTES = 4

/** The tests of `npm test`: each policy, fault family, transport, era and command once from outside. */
export const quick: { readonly files: Paths; readonly without: Paths; readonly leavesOut: string } = {
  files: [...parts.core, 'exchanges/'],
  without: ['experiments/statistics/'],
  leavesOut: 'TBD',
}
