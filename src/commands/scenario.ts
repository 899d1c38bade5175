import { refusalOf, type Transport, transports } from '../chaos/fault.ts'
import { faults } from '../chaos/faults/index.ts'
import type { Env } from '../config/files/interpolate.ts'
import { Cancellation } from '../mesh/cancel.ts'
import { keepAlive, type Millis, systemClock } from '../mesh/clock.ts'
import { glob } from '../mesh/match.ts'
import { formatDuration } from '../units/duration.ts'
import { controlAccess, Misuse, optionLines, type Output, readArguments } from './arguments.ts'
import { controlAt } from './chaos/control.ts'
import { type Aim, aimed, readScenario, type Scenario, scenarioNames } from './scenario/library.ts'
import {
  ControlError,
  type Faults,
  faultsAt,
  type RunOptions,
  runScenario,
  type ScenarioRun,
} from './scenario/run.ts'
import { Traffic, TrafficError, type TrafficOptions, type TrafficReport } from './scenario/traffic.ts'
import { faultLine } from './wrap/report.ts'
import { onSignals } from './wrap/signals.ts'

/** Exit codes: what could not run, and what ran and proves nothing or was not understood. */
const FAILED = 1
const INVALID = 2

/** `breakwater scenario …`: ready-made faults against a running gateway. Resolves to the exit code. */
export async function scenario(args: readonly string[], out: Output, env: Env): Promise<number> {
  let asked
  try {
    asked = readScenarioArguments(args)
  } catch (error) {
    if (!(error instanceof Misuse)) throw error
    out.stderr(`breakwater scenario: ${error.message}\n\n${usage}`)
    return INVALID
  }
  switch (asked.what) {
    case 'help':
      out.stdout(usage)
      return 0
    case 'list':
      return list(out)
    case 'run':
      return runNamed(asked, out, env)
  }
}

async function list(out: Output): Promise<number> {
  // Whoever reads may have read enough, as `head` does.
  process.stdout.on('error', ignore)
  const names = await scenarioNames()
  const width = Math.max(0, ...names.map((name) => name.length))
  let broken = 0
  for (const name of names) {
    const read = await readScenario(name)
    if (read.ok) out.stdout(`${name.padEnd(width)}  ${read.scenario.description}${limitsOf(read.scenario)}`)
    else for (const problem of read.problems) out.stderr(`breakwater: ${problem}`)
    if (!read.ok) broken++
  }
  return broken === 0 ? 0 : FAILED
}

/** Over which transports it cannot show anything, as a remark behind its description. */
function limitsOf({ faults: entries }: Scenario): string {
  const isHitBy = (transport: Transport) =>
    entries.some(({ type, side }) => {
      const known = faults[String(type)]
      return (
        side === 'client' ||
        (known !== undefined && refusalOf(known, { transport, era: undefined }) === undefined)
      )
    })
  const hit = transports.filter(isHitBy)
  return hit.length === transports.length ? '' : ` (Servers over ${hit.join(' or ')} only.)`
}

async function runNamed(asked: RunAsked, out: Output, env: Env): Promise<number> {
  const read = await readScenario(asked.name)
  if (!read.ok) {
    for (const problem of read.problems) out.stderr(`breakwater: ${problem}`)
    return FAILED
  }
  const how = { ...asked.aim, durationMs: asked.durationMs ?? read.scenario.duration, traffic: asked.traffic }
  return run(read.scenario, how, faultsAt(controlAt({ base: asked.control, token: asked.token, env })), out)
}

/** Traffic to the servers that a run is aimed at; undefined when it makes none. */
async function trafficOf(
  { name, faults }: Scenario,
  { traffic, ...aim }: Aim & Pick<RunAsked, 'traffic'>,
  gateway: Faults,
): Promise<Traffic | undefined> {
  if (traffic === undefined) return undefined
  const globs = faults.map((fault) => glob(aimed(fault, aim).target))
  const servers = (await gateway.servers()).filter((server) => globs.some((isOne) => isOne(server)))
  return Traffic.to(servers, { ...traffic, name }, systemClock)
}

async function run(
  scenario: Scenario,
  how: RunOptions & Pick<RunAsked, 'traffic'>,
  gateway: Faults,
  out: Output,
): Promise<number> {
  introduce(scenario, how, out)
  const stop = new Cancellation()
  // However often somebody asks: what was injected is taken away first, which takes a few seconds at most.
  const off = onSignals(['SIGTERM', 'SIGINT', 'SIGHUP'], () => stop.abort('signal'))
  // A reader that has gone is no reason either to leave faults behind.
  process.stdout.on('error', ignore)
  // Between two looks at the gateway nothing else keeps the process alive.
  const letEnd = keepAlive()
  try {
    const traffic = await trafficOf(scenario, how, gateway)
    const { status } = out
    const say = (line: string) => out.stderr(line)
    const parts = { gateway, clock: systemClock, stop, say, status, ...(traffic && { traffic }) }
    const done = await runScenario(scenario, how, parts)
    report(done, traffic?.report, out)
    return done.flaws.length === 0 ? 0 : INVALID
  } catch (error) {
    if (!(error instanceof ControlError || error instanceof TrafficError)) throw error
    out.stderr(`breakwater: ${error.message}`)
    return FAILED
  } finally {
    letEnd()
    off()
  }
}

function ignore(): void {}

const options = {
  server: { kind: 'text', value: 'GLOB', default: '*', about: 'the servers to hit' },
  duration: {
    kind: 'duration',
    min: 1_000,
    value: 'DURATION',
    about: 'how long, such as 60s (default: what the scenario says)',
  },
  traffic: {
    kind: 'integer',
    max: 100,
    value: 'N',
    about: 'makes N calls a second itself, of tools that only read',
  },
  tool: { kind: 'text', value: 'GLOB', about: 'the tools that it calls, whatever they do' },
  data: {
    kind: 'url',
    value: 'URL',
    default: 'http://127.0.0.1:8080',
    about: 'the port of the agents, where it makes calls',
  },
  'allow-writes': {
    kind: 'flag',
    about: 'hits tools not known to be read-only, whatever the scenario says',
  },
  ...controlAccess,
} as const

const usage = `breakwater scenario: ready-made faults, with what to expect of the mesh

  breakwater scenario list              the scenarios that there are
  breakwater scenario run NAME          runs one against a running gateway; NAME may be a file (./mine.yaml)

${optionLines(options)}

  Exit codes: 0; 1 when it could not run; 2 when it ran and proves nothing, or the arguments make no sense.`

/** A run, as the arguments have it. */
interface RunAsked {
  readonly what: 'run'
  /** Of the library, or the path of a file. */
  readonly name: string
  readonly aim: Aim
  /** Undefined: as long as the scenario says. */
  readonly durationMs: Millis | undefined
  /** The calls that it makes itself. */
  readonly traffic: Pick<TrafficOptions, 'data' | 'rate' | 'tool'> | undefined
  /** URL of the control port. */
  readonly control: string
  readonly token: string | undefined
}

/** What the arguments ask for. */
export type ScenarioArguments = RunAsked | { readonly what: 'help' | 'list' }

/** Reads the arguments behind `breakwater scenario`. Throws `Misuse`. */
export function readScenarioArguments(args: readonly string[]): ScenarioArguments {
  const read = readArguments(args, { options })
  if (read.help) return { what: 'help' }
  const [what, name, ...rest] = read.positionals
  if (what === 'list' && name === undefined) return { what }
  if (what !== 'run' || name === undefined || rest.length > 0) throw new Misuse('expected list, or run NAME')
  const { server, duration: durationMs, control, token, 'allow-writes': allowWrites } = read.values
  const { traffic: rate, tool, data } = read.values
  if (rate === 0) throw new Misuse('--traffic must be at least 1 call a second')
  if (rate === undefined && tool !== undefined) throw new Misuse('--tool goes with --traffic N')
  const traffic = rate === undefined ? undefined : { rate, tool, data: data.replace(/\/+$/, '') }
  return { what, name, aim: { server, allowWrites }, durationMs, traffic, control, token }
}

/** Says what is about to happen, and what to expect of the mesh. */
function introduce(
  { name, description, expect }: Scenario,
  { server, durationMs }: RunOptions,
  out: Output,
): void {
  out.stdout(`${name}: ${description}`)
  out.stdout(`Runs for ${formatDuration(durationMs)} against ${server}. What to expect:`)
  for (const sentence of expect) out.stdout(`  - ${sentence}`)
}

/** Says what each fault did, and how the run's own calls ended; and on standard error, why the run proves nothing. */
function report({ faults, flaws }: ScenarioRun, traffic: TrafficReport | undefined, out: Output): void {
  const width = Math.max(0, ...faults.map(({ name }) => name.length))
  for (const { name, id, counts } of faults) {
    out.stdout(
      counts === undefined ? `${name} (${id}): nothing is known` : faultLine({ ...counts, name }, width),
    )
    if (counts !== undefined && counts.hits > 0 && counts.concurrent > 0)
      out.stdout(`${' '.repeat(width)}  ${counts.concurrent} calls were still held when it was cleared`)
  }
  if (traffic !== undefined) {
    const endings = Object.entries(traffic.endings).map(([word, count]) => `${word} ${count}`)
    out.stdout(`${traffic.calls} calls were made: ${endings.join(', ')}`)
  }
  for (const flaw of flaws) out.stderr(`breakwater: INVALID: ${flaw}`)
}
