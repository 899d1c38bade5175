import type { Env } from '../../config/files/interpolate.ts'
import type { RunRecord } from '../../experiments/guarded/record.ts'
import { runMarkdownOf } from '../../experiments/guarded/report.ts'
import { markdownOf } from '../../experiments/report-text.ts'
import type { Report } from '../../experiments/report.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { type Signable, signedApprovalOf } from '../agents/proposal.ts'
import { keyOption } from '../agents/signer.ts'
import { listed, optionLines, optionsOf, type Output, UnusableInput } from '../shared/arguments.ts'
import {
  ask,
  type Command,
  common,
  type Given,
  paintOf,
  runNamed,
  textOf,
} from '../shared/control-command.ts'
import { table } from '../shared/table.ts'
import {
  isGuarded,
  people,
  person,
  plan,
  run,
  runLines,
  type ShownRun,
  stateTones,
  validate,
  verify,
} from './experiment/guarded.ts'
import { numbered } from '../../units/numbered.ts'

const format = {
  format: {
    kind: 'choice',
    of: ['md', 'html', 'json', 'csv'],
    value: 'FORMAT',
    default: 'md',
    about: 'md, html, json, or csv (samples, a line per unit and arm)',
  },
} as const

/** A comparison, in the format of `/admin/experiments`. */
interface Shown {
  readonly kind?: 'comparison'
  readonly name: string
  readonly state: 'not_started' | 'running' | 'ended'
  readonly arms: Readonly<Record<string, { readonly set: string; readonly units: number }>>
  /** Number of matching calls that are in no arm, with the reason; absent without such calls. */
  readonly leftOut?: { readonly calls: number; readonly why: string }
  readonly metric: string
  readonly startedAt?: string
  readonly endedAt?: string
  readonly endedBecause?: string
  readonly verdict?: { readonly result: string; readonly sentence: string }
}

/** Explains a count of 0 units in a running comparison. */
const COUNTED = 'units count once they are over: telemetry.intents.idle after their last call (default: 30s)'

const states = { not_started: 'not started', running: 'running', ended: 'ended' } as const

const list: Command = {
  run: (given) =>
    ask(
      given,
      { method: 'GET', path: '/admin/experiments' },
      ({ experiments }: { experiments: readonly (Shown | ShownRun)[] }) => {
        if (experiments.length === 0)
          return ['there are no experiments; add them to the config under "experiments"']
        const rows = experiments.map((shown) => (isGuarded(shown) ? guardedRow(shown) : rowOf(shown)))
        const head = ['NAME', 'STATE', 'ENDED', 'ARMS', 'METRIC', 'VERDICT']
        const isUnderWay = experiments.some((shown) => !isGuarded(shown) && shown.state === 'running')
        return [...table(head, rows, given.width, paintOf(given)), ...(isUnderWay ? ['', COUNTED] : [])]
      },
    ),
}

/** Formats a time to the minute, in UTC. */
const minuteOf = (time: string | undefined) => time?.replace(/T(\d\d:\d\d).*/, ' $1Z') ?? '-'

const rowOf = (shown: Shown) => [
  shown.name,
  { text: states[shown.state], tone: shown.state === 'running' ? ('doubtful' as const) : ('aside' as const) },
  minuteOf(shown.endedAt),
  armsIn(shown.arms),
  shown.metric,
  found(shown),
]

/**
 * Returns the result of a comparison in a few words; for an invalid comparison, the reasons. An early end by an
 * operator is one of these reasons.
 */
function found({ state, endedBecause, verdict }: Shown): string {
  if (state === 'running' && verdict?.result === 'inconclusive') return 'not decided yet'
  if (verdict?.result !== 'invalid') return verdict?.result ?? '-'
  return [endedBecause, verdict.sentence].filter((words) => words !== undefined).join('; ')
}

const guardedRow = ({ name, state, endedAt, arms, reason }: ShownRun) => [
  name,
  { text: state, tone: stateTones[state] },
  minuteOf(endedAt),
  `control=${arms.control} treatment=${arms.treatment}`,
  '-',
  reason,
]

const armsIn = (arms: Shown['arms']) =>
  Object.entries(arms)
    .map(([arm, { set, units }]) => `${arm}=${set} (${units})`)
    .join(' ')

const status: Command = {
  positionals: ['NAME'],
  run: (given) => ask(given, { method: 'GET', path: pathOf(given) }, linesFor(given)),
}

const linesFor =
  (given: Given) =>
  (shown: Shown | ShownRun): string[] =>
    isGuarded(shown) ? runLines(shown, given) : comparisonLines(shown)

function comparisonLines(shown: Shown): string[] {
  const { name, state, arms, leftOut, metric, startedAt, endedBecause, verdict } = shown
  return [
    `${name}: ${states[state]}${startedAt === undefined ? '' : `, since ${startedAt}`}${endedBecause === undefined ? '' : `; ${endedBecause}`}`,
    ...Object.entries(arms).map(
      ([arm, { set, units }]) => `${arm}: policy set ${set}, ${numbered(units, 'unit')}`,
    ),
    ...(leftOut === undefined ? [] : [`in no arm: ${numbered(leftOut.calls, 'call')}, as ${leftOut.why}`]),
    ...(state === 'running' ? [COUNTED] : []),
    `decided by ${metric}`,
    ...(verdict === undefined ? [] : [verdict.sentence]),
  ]
}

const turning = (what: 'start' | 'stop'): Command => ({
  positionals: ['NAME'],
  options: { by: people.by },
  run: (given) =>
    ask(
      given,
      { method: 'POST', path: `${pathOf(given)}/${what}`, body: { by: person(given) } },
      linesFor(given),
    ),
})

/** With `--key`, a signature approves; gateways with trusted keys accept nothing else. */
const approve: Command = {
  positionals: ['NAME'],
  options: { by: people.by, ...keyOption },
  async run(given) {
    if (textOf(given.values, 'key') === undefined)
      return ask(
        given,
        { method: 'POST', path: `${pathOf(given)}/approve`, body: { by: person(given) } },
        linesFor(given),
      )
    const path = `${pathOf(given)}/approval`
    const answered = await given.control({ method: 'GET', path })
    if (!answered.ok) throw new UnusableInput(answered.message)
    const body = await signedApprovalOf(given, answered.value as Signable)
    return ask(given, { method: 'POST', path, body }, linesFor(given))
  },
}

const report: Command = {
  positionals: ['NAME'],
  options: format,
  async run(given) {
    const { control, values, out } = given
    const asked = values.json === true ? 'json' : values.format
    const isText = asked === 'csv'
    const path = `${pathOf(given)}/${isText ? 'samples' : 'report'}`
    const answered = await control({ method: 'GET', path, isText })
    if (!answered.ok) {
      out.stderr(`breakwater: ${answered.message}`)
      return 1
    }
    out.stdout((await rendered(answered.value, String(asked))).trimEnd())
    return 0
  },
}

async function rendered(value: unknown, asked: string): Promise<string> {
  switch (asked) {
    case 'csv':
      return value as string
    case 'json':
      return JSON.stringify(value, undefined, 2)
    case 'html':
      return isRun(value)
        ? (await import('../../experiments/guarded/report-html.ts')).runHtmlOf(value)
        : (await import('../../experiments/report-html.ts')).htmlOf(value as Report)
    default:
      return isRun(value) ? runMarkdownOf(value) : markdownOf(value as Report)
  }
}

const isRun = (value: unknown): value is RunRecord => isObject(value) && value.kind === 'guarded'

const pathOf = ({ positionals: [name = ''] }: Given) => `/admin/experiments/${encodeURIComponent(name)}`

const commands: Readonly<Record<string, Command>> = {
  list,
  start: turning('start'),
  stop: turning('stop'),
  status,
  report,
  validate,
  plan,
  run,
  approve,
  verify,
}

const usage = `breakwater experiment: experiments on the traffic of a running gateway, over its control port

  breakwater experiment list            shows all experiments and their results
  breakwater experiment stop NAME       ends an experiment; calls use the default policies again
  breakwater experiment status NAME     shows arms, progress and verdict
  breakwater experiment report NAME     prints the full report

Comparisons of policy sets, from the config:
  breakwater experiment start NAME      starts a comparison anew

Guarded experiments, each in its own file:
  breakwater experiment validate FILE   checks a file; needs no gateway
  breakwater experiment plan FILE       shows targets, and reasons against a run; injects nothing
  breakwater experiment run FILE        runs the experiment, and shows the progress
  breakwater experiment approve NAME    approves a waiting run, which then begins
  breakwater experiment verify          checks the chain of the journal of runs; needs no gateway

${optionLines([...listed(common), ...optionsOf(commands)])}

  Exit codes: 0; 1 on failure or refusal, or when the run was not completed; 2 for wrong arguments.`

/** `breakwater experiment …`: resolves to the exit code; 2 for wrong arguments. */
export const experiment = (args: readonly string[], out: Output, env: Env): Promise<number> =>
  runNamed(args, { usage, commands }, out, env)
