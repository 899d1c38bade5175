import { clearInterval, setInterval } from 'node:timers'
import { parseArgs } from 'node:util'
import type { Env } from '../config/files/interpolate.ts'
import { Cancellation } from '../mesh/cancel.ts'
import { systemClock } from '../mesh/clock.ts'
import { duration, formatDuration } from '../units/duration.ts'
import { controlAt } from './chaos/control.ts'
import { ControlError, faultsAt, type Faults } from './scenario/control.ts'
import { readScenario, scenarioNames, type Scenario } from './scenario/library.ts'
import { runScenario, type Run, type RunOptions } from './scenario/run.ts'
import type { Output } from './start.ts'
import { faultLine } from './wrap/report.ts'
import { onSignals } from './wrap/signals.ts'

const options = {
  server: { type: 'string', default: '*' },
  duration: { type: 'string' },
  control: { type: 'string', default: 'http://127.0.0.1:8081' },
  token: { type: 'string' },
  'allow-writes': { type: 'boolean', default: false },
  help: { type: 'boolean', short: 'h' },
} as const

const usage = `breakwater scenario: ready-made faults, with what to expect of the mesh

  breakwater scenario list              the scenarios that there are
  breakwater scenario run NAME          runs one against a running gateway; NAME may be a file (./mine.yaml)

  --server GLOB         the servers to hit (default: all)
  --duration DURATION   how long, such as 60s (default: what the scenario says)
  --allow-writes        hits tools not known to be read-only, whatever the scenario says
  --control URL         the control port (default: http://127.0.0.1:8081)
  --token TOKEN         the control token (default: BREAKWATER_TOKEN)

  Exit codes: 0; 1 when it could not run; 2 when it ran and proves nothing, or the arguments make no sense.`

const KEEP_ALIVE_MS = 60_000

/** Exit codes: what could not run, and what ran and proves nothing. */
const FAILED = 1
const INVALID = 2

/** `breakwater scenario …`: ready-made faults against a running gateway. Resolves to the exit code. */
export async function scenario(args: readonly string[], out: Output, env: Env): Promise<number> {
  const misused = (message: string) => {
    out.stderr(`breakwater scenario: ${message}\n\n${usage}`)
    return 2
  }
  let parsed
  try {
    parsed = parseArgs({ args: [...args], options, allowPositionals: true })
  } catch (error) {
    return misused((error as Error).message)
  }
  const { values, positionals } = parsed
  const [what, name, ...rest] = positionals
  if (values.help === true) {
    out.stdout(usage)
    return 0
  }
  if (what === 'list' && name === undefined) return list(out)
  if (what !== 'run' || name === undefined || rest.length > 0) return misused('expected list, or run NAME')
  const { server, control } = values
  if (!/^https?:\/\/[^/]/.test(control) || !URL.canParse(control))
    return misused(`--control must be a URL such as ${options.control.default}, not "${control}"`)
  const read = await readScenario(name)
  if (!read.ok) {
    for (const problem of read.problems) out.stderr(`breakwater: ${problem}`)
    return FAILED
  }
  const length = duration({ min: 1_000 }).safeParse(values.duration ?? read.scenario.duration)
  if (!length.success) return misused(`--duration: ${length.error.issues[0]?.message}`)
  const faults = faultsAt(controlAt(control, values.token ?? (env.BREAKWATER_TOKEN || undefined)))
  return run(
    read.scenario,
    { server, durationMs: length.data, allowWrites: values['allow-writes'] },
    faults,
    out,
  )
}

async function list(out: Output): Promise<number> {
  // Whoever reads may have read enough, as `head` does.
  process.stdout.on('error', ignore)
  const names = await scenarioNames()
  const width = Math.max(0, ...names.map((name) => name.length))
  let broken = 0
  for (const name of names) {
    const read = await readScenario(name)
    if (read.ok) out.stdout(`${name.padEnd(width)}  ${read.scenario.description}`)
    else for (const problem of read.problems) out.stderr(`breakwater: ${problem}`)
    if (!read.ok) broken++
  }
  return broken === 0 ? 0 : FAILED
}

async function run(scenario: Scenario, how: RunOptions, gateway: Faults, out: Output): Promise<number> {
  introduce(scenario, how, out)
  const stop = new Cancellation()
  // However often somebody asks: what was injected is taken away first, which takes a few seconds at most.
  const off = onSignals(['SIGTERM', 'SIGINT', 'SIGHUP'], () => stop.abort('signal'))
  // A reader that has gone is no reason either to leave faults behind.
  process.stdout.on('error', ignore)
  // Timers of the clock keep no process alive, and between two looks at the gateway nothing else does.
  const alive = setInterval(ignore, KEEP_ALIVE_MS)
  try {
    return report(
      await runScenario(scenario, how, { gateway, clock: systemClock, stop, say: out.stderr }),
      out,
    )
  } catch (error) {
    if (!(error instanceof ControlError)) throw error
    out.stderr(`breakwater: ${error.message}`)
    return FAILED
  } finally {
    clearInterval(alive)
    off()
  }
}

function ignore(): void {}

function introduce(
  { name, description, expect }: Scenario,
  { server, durationMs }: RunOptions,
  out: Output,
): void {
  out.stdout(`${name}: ${description}`)
  out.stdout(`Runs for ${formatDuration(durationMs)} against ${server}. What to expect:`)
  for (const sentence of expect) out.stdout(`  - ${sentence}`)
}

function report({ faults, flaws }: Run, out: Output): number {
  const width = Math.max(0, ...faults.map(({ name }) => name.length))
  for (const { name, id, counts } of faults) {
    out.stdout(
      counts === undefined ? `${name} (${id}): nothing is known` : faultLine({ ...counts, name }, width),
    )
    if (counts !== undefined && counts.hits > 0 && counts.concurrent > 0)
      out.stdout(`${' '.repeat(width)}  ${counts.concurrent} calls were still held when it was cleared`)
  }
  for (const flaw of flaws) out.stderr(`breakwater: INVALID: ${flaw}`)
  return flaws.length === 0 ? 0 : INVALID
}
