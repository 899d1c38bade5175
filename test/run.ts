/**
 * Runs tests by Node's own runner: `npm test` all that answer within minutes together, `npm run test:slow` the rest, `-- --core` those that no
 * process, socket or wall clock is in, which are enough to see whether another line of Node behaves as this one does.
 *
 * The runner starts a process for each file that it is given, which takes longer than most tests do. So those of the core are given to it a
 * folder at a time, by a file that imports them; but for those with hooks, which would be the hooks of all, and those that look at their
 * process as a whole, or change it.
 */
import { spawn } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { bound } from './support/bound.ts'

/** What counts, waits or computes for minutes, or packs and starts the whole of it once more. */
const slow = [
  'commands/docs/blast-radius',
  'commands/scenarios-hold',
  'commands/search',
  'commands/study',
  'commands/sweep',
  'docs/snippets',
  'drills/deaf-clients',
  'drills/stalled',
  'drills/vanishing',
  'e2e/chaos/kill-restart',
  'e2e/chaos/list-cells',
  'e2e/counting/',
  'e2e/deadlines-everywhere',
  'e2e/compare',
  'e2e/deaf-client',
  'e2e/demo-live',
  'e2e/experiments.test',
  'e2e/experiments/guarded-crash',
  'e2e/experiments/guarded-refused',
  'e2e/experiments/library',
  'e2e/flapping',
  'e2e/health/incidents',
  'e2e/health/reasons',
  'e2e/hostile-servers',
  'e2e/hung-tool',
  'e2e/live-equals-simulated',
  'e2e/neighbours',
  'e2e/package',
  'e2e/recovery-under-load',
  'e2e/replay',
  'e2e/replicas-return',
  'e2e/retry-storm',
  'e2e/scenario.test',
  'e2e/scenarios',
  'e2e/slow-replica',
  'e2e/slow-start',
  'experiments/statistics/',
  'sim/search/',
  'sim/studies/',
]

/** What is tested within one process. */
const core = [
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
]

/** Of these, what counts on a process of its own: what is left of servers, and who ends them. */
const apart = ['gateway/', 'upstreams/']

/** No file takes longer, in milliseconds: one that does has hung, and is named. */
const LIMIT_MS = 600_000

/** Processes at a time: one more than CI has cores, as tests of processes and sockets wait for a part of their time. */
const AT_A_TIME = 3

const { values } = parseArgs({
  options: { slow: { type: 'boolean', default: false }, core: { type: 'boolean', default: false } },
})
const folder = fileURLToPath(new URL('.', import.meta.url))
const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.test.js'))
  .map((file) => relative(folder, join(folder, file)))
  .sort()
const among = (names: readonly string[]) => (file: string) => names.some((name) => file.startsWith(name))
for (const name of [...slow, ...core])
  if (!files.some(among([name]))) throw new Error(`no test file begins with ${name}`)
const isSlow = among(slow)
const chosen = files.filter((file) => isSlow(file) === values.slow && (!values.core || among(core)(file)))

/** What a file says that needs a process of its own. */
const ALONE =
  /^(before|after)(Each)?\(|\bprocess\.(on|once|emit|env|chdir|getActiveResourcesInfo|memoryUsage)\b|\bheapUsed\b|\.mock\.method\(/m
const isAlone = (file: string) => ALONE.test(readFileSync(join(folder, file), 'utf8'))

/** Where the files lie that import others: written anew each time, and no tests of their own. */
const together = join(folder, 'together')
rmSync(together, { recursive: true, force: true })
mkdirSync(together)

/** The chosen files, with one in place of all that run in one process. */
function grouped(): string[] {
  const shared = new Set<string>()
  const groups = core.flatMap((name) => {
    if (apart.includes(name)) return []
    const members = chosen.filter((file) => file.startsWith(name) && !isAlone(file))
    if (members.length < 2) return []
    for (const file of members) shared.add(file)
    const group = join(together, `${name.replaceAll('/', '')}.js`)
    writeFileSync(group, members.map((file) => `import '../${file}'\n`).join(''))
    return [group]
  })
  return [...groups, ...chosen.filter((file) => !shared.has(file)).map((file) => join(folder, file))]
}

const runner = spawn(
  process.execPath,
  [
    '--test',
    '--test-reporter=spec',
    `--test-concurrency=${AT_A_TIME}`,
    `--test-timeout=${LIMIT_MS}`,
    ...grouped(),
  ],
  { stdio: 'inherit', env: bound() },
)
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => runner.kill(name))
runner.once('exit', (code, signal) => process.exit(signal === null ? code : 1))
