import { fromMcpChaos } from '../../../chaos/plan/compat/index.ts'
import type { Env } from '../../../config/files/interpolate.ts'
import { thorough } from '../../../sim/agents.ts'
import { type IdleFaults, idleFaults } from '../../../sim/idle-faults.ts'
import { none, type PolicyChoice } from '../../../sim/policy-choices.ts'
import { simulated } from '../../../sim/run.ts'
import { planned, sceneOf, toolsAimedAt } from '../../../sim/scene.ts'
import { rounded } from '../../../sim/statistics.ts'
import { predictedRadius, type Slis, slisOf } from '../../../sim/tasks.ts'
import type { Fault } from '../../../chaos/plan/common.ts'
import { optionLines, type Output, runCommand, UnusableInput, type Values } from '../../shared/arguments.ts'
import { liveOptions } from './live/options.ts'
import { choiceOf, idleIn, planOf, policyOptions } from './inputs.ts'
import { numbered } from '../../../units/numbered.ts'

const options = {
  tasks: { kind: 'integer', min: 1, max: 100_000, value: 'N', default: '200', about: 'tasks of the agent' },
  'fan-out': {
    kind: 'integer',
    min: 1,
    max: 1_000,
    value: 'N',
    default: '8',
    about: 'tool calls of each task, in turn',
  },
  rate: { kind: 'number', max: 1, value: 'RATE', default: '0.02', about: 'share of failing attempts' },
  seed: { kind: 'integer', value: 'SEED', default: '42', about: 'the same seed gives the same run' },
  plan: { kind: 'text', value: 'FILE', about: 'faults instead of errors at --rate' },
  ...policyOptions,
  json: { kind: 'flag', about: 'prints JSON' },
} as const

const usage = `breakwater demo

  Simulates an agent's tool calls through the mesh, some of them failing: once without any policy, and once with the
  default policies. Needs no server and no network; the same arguments print the same lines everywhere.

${optionLines(options)}

  breakwater demo --live

  Starts two MCP servers, a gateway in front, and agents calling their tools. Arms, changes and kills faults, and shows
  the fate of calls, tasks, gates and faults. Ends by itself, and leaves nothing behind.

${optionLines(liveOptions)}

  Exit codes: 0; 1 when it could not run; 2 for wrong arguments, or when the numbers of --live do not add up.`

/** Maximum number of calls in a run: more calls show nothing new, and take minutes. */
const MOST_CALLS = 10_000_000

export function demo(args: readonly string[], out: Output, env: Env): Promise<number> {
  if (args.includes('--live')) {
    const line = { usage, options: liveOptions, positionals: [] }
    return runCommand(args, line, out, async (values) => {
      const { live } = await import('./live/live.ts')
      return live(values, out, env)
    })
  }
  return runCommand(args, { usage, options, positionals: [] }, out, async (values) => {
    const { result, idle } = await run(values, env)
    for (const line of idle) out.stderr(`breakwater: ${line}`)
    if (values.json) out.stdout(JSON.stringify(result, undefined, 2))
    else for (const line of textOf(result, values)) out.stdout(line)
    return 0
  })
}

export interface DemoResult {
  /** Share of tasks with a failed call, for independent failures and no retries; null under a plan. */
  readonly predicted: number | null
  readonly rows: readonly ({ readonly policies: string } & Slis)[]
}

/** The output of a demo, and lines on faults without a hit. */
interface Ran {
  readonly result: DemoResult
  readonly idle: readonly string[]
}

async function run(values: Values<typeof options>, env: Env): Promise<Ran> {
  const { tasks, 'fan-out': fanOut, rate, seed, plan } = values
  if (tasks * fanOut > MOST_CALLS)
    throw new UnusableInput(`${tasks} tasks of ${fanOut} calls are more than ${MOST_CALLS} calls`)
  const faults = plan === undefined ? failing(rate) : await planOf(plan, env)
  const { servers, stepsOf } = sceneOf(fanOut, toolsAimedAt(faults))
  const idle: IdleFaults[] = []
  const row = async (choice: PolicyChoice) => {
    const workload = { tasks, stepsOf, agent: thorough }
    const { tally, gateway } = await simulated({ seed, servers, choice, faults, workload })
    idle.push(idleFaults(gateway))
    return { policies: choice.name, ...roundedSlis(slisOf(tally)) }
  }
  const rows = [await row(none), await row(await choiceOf(values, env))]
  if (plan === undefined)
    return { result: { predicted: rounded(predictedRadius(rate, fanOut)), rows }, idle: [] }
  return { result: { predicted: null, rows }, idle: idleIn(plan, faults, idle) }
}

/** Returns a fault that fails each attempt independently with probability `rate`, as in plans of mcp-chaos. */
function failing(rate: number): readonly Fault[] {
  const [fault] = fromMcpChaos({ faults: [{ type: 'error_injection', rate }] }, { ttl: '1h' }).faults
  return [planned(fault as object)]
}

const roundedSlis = ({ tcaf, tcsr, eta, unchecked, blastRadius }: Slis): Slis => ({
  tcaf: rounded(tcaf),
  tcsr: rounded(tcsr),
  eta: rounded(eta),
  unchecked: rounded(unchecked),
  blastRadius: rounded(blastRadius),
})

const labels: Readonly<Record<string, string>> = { none: 'no resilience', default: 'with resilience' }

function* textOf({ predicted, rows }: DemoResult, values: Values<typeof options>): Generator<string> {
  const { tasks, 'fan-out': fanOut, rate, seed } = values
  if (predicted !== null)
    yield `${'predicted'.padEnd(16)}${' '.repeat(46)}blast_radius=${predicted.toFixed(2)}  = 1 - (1 - ${rate})^${fanOut}`
  for (const { policies, tcaf, tcsr, eta, unchecked, blastRadius } of rows) {
    const numbers = [
      `TCAF=${tcaf.toFixed(1)}`,
      `TCSR=${tcsr.toFixed(2)}`,
      `ETA=${eta.toFixed(2)}`,
      `unchecked=${unchecked.toFixed(2)}`,
      `blast_radius=${blastRadius.toFixed(2)}`,
    ]
    yield `${(labels[policies] ?? policies).padEnd(16)}${numbers.join('  ')}`
  }
  yield `(${numbered(tasks, 'task')} of ${numbered(fanOut, 'call')}, simulated, seed ${seed})`
}
