import type { Env } from '../config/files/interpolate.ts'
import { Cancellation } from '../mesh/cancel.ts'
import { keepAlive, systemClock } from '../mesh/clock.ts'
import { Misuse } from './chaos/command.ts'
import { controlAt } from './chaos/control.ts'
import { readArguments, usage, type RunAsked } from './scenario/arguments.ts'
import { ControlError, faultsAt, type Faults } from './scenario/control.ts'
import { readScenario, scenarioNames, type Scenario } from './scenario/library.ts'
import { introduce, report } from './scenario/report.ts'
import { runScenario, type RunOptions } from './scenario/run.ts'
import type { Output } from './start.ts'
import { onSignals } from './wrap/signals.ts'

/** Exit codes: what could not run, and what ran and proves nothing or was not understood. */
const FAILED = 1
const INVALID = 2

/** `breakwater scenario …`: ready-made faults against a running gateway. Resolves to the exit code. */
export async function scenario(args: readonly string[], out: Output, env: Env): Promise<number> {
  let asked
  try {
    asked = readArguments(args)
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
    if (read.ok) out.stdout(`${name.padEnd(width)}  ${read.scenario.description}`)
    else for (const problem of read.problems) out.stderr(`breakwater: ${problem}`)
    if (!read.ok) broken++
  }
  return broken === 0 ? 0 : FAILED
}

async function runNamed(asked: RunAsked, out: Output, env: Env): Promise<number> {
  const read = await readScenario(asked.name)
  if (!read.ok) {
    for (const problem of read.problems) out.stderr(`breakwater: ${problem}`)
    return FAILED
  }
  const how = { ...asked.aim, durationMs: asked.durationMs ?? read.scenario.duration }
  return run(read.scenario, how, faultsAt(controlAt({ base: asked.control, token: asked.token, env })), out)
}

async function run(scenario: Scenario, how: RunOptions, gateway: Faults, out: Output): Promise<number> {
  introduce(scenario, how, out)
  const stop = new Cancellation()
  // However often somebody asks: what was injected is taken away first, which takes a few seconds at most.
  const off = onSignals(['SIGTERM', 'SIGINT', 'SIGHUP'], () => stop.abort('signal'))
  // A reader that has gone is no reason either to leave faults behind.
  process.stdout.on('error', ignore)
  // Between two looks at the gateway nothing else keeps the process alive.
  const letEnd = keepAlive()
  try {
    const done = await runScenario(scenario, how, { gateway, clock: systemClock, stop, say: out.stderr })
    report(done, out)
    return done.flaws.length === 0 ? 0 : INVALID
  } catch (error) {
    if (!(error instanceof ControlError)) throw error
    out.stderr(`breakwater: ${error.message}`)
    return FAILED
  } finally {
    letEnd()
    off()
  }
}

function ignore(): void {}
