import { z } from 'zod'
import type { Env } from '../../config/files/interpolate.ts'
import { compareTwins, type PairedReport, type TwinPair } from '../../experiments/paired.ts'
import { pairedMarkdown } from '../../experiments/paired-text.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import { type Clock, type Millis, systemClock } from '../../mesh/clock.ts'
import {
  Misuse,
  optionLines,
  type Output,
  runCommand,
  seeded,
  unusable,
  UnusableInput,
  type Values,
} from '../shared/arguments.ts'
import { Agents } from '../../load/agents.ts'
import { anything, ask, Decisions, samplesIn } from './evidence.ts'
import {
  type ArmedFault,
  ArmedPlan,
  type Plan,
  planAt,
  replaceable,
  since,
  stateOf,
  takeAwayLeft,
} from './faults.ts'
import { pairedDocument } from './summary.ts'
import { playTwins, prefixOf, type Side, type Twins } from '../../load/twins.ts'
import {
  checkOwn,
  demoOrigin,
  openOwn,
  openRunning,
  type Origin,
  originAt,
  type Sets,
  type Venue,
} from './venue.ts'
import {
  exposedName,
  readWorkload,
  serversOf,
  shippedAt,
  unknownTools,
  type Workload,
} from '../../load/workload.ts'
import { RUN_PATIENCE_MS } from '../shared/control.ts'
import { gatewayFacts } from '../shared/gateway-facts.ts'
import { unwritable, writeReport } from '../shared/report-file.ts'
import { documentLines, summaryHint, summaryOption } from '../shared/summary-file.ts'
import { showProgress } from '../shared/progress.ts'
import { type Closing, endingInOrder, INTERRUPTED } from '../shared/signals.ts'
import { demandFaults } from '../shared/stage.ts'
import { formatDuration } from '../../units/duration.ts'
import { numbered } from '../../units/numbered.ts'

/** Exit code of a finished run that proves nothing. */
const UNSOUND = 2

/** Default data address of a gateway. */
const DEFAULT_DATA = 'http://127.0.0.1:8080'

const options = {
  sets: {
    kind: 'text',
    value: 'A,B',
    about: 'two policy sets; A is the baseline for B (for the demo: default,no_retries)',
  },
  workload: {
    kind: 'text',
    value: 'FILE',
    about: "the agents' tasks (for the demo: orders.yaml of the package)",
  },
  tasks: {
    kind: 'integer',
    // An experiment keeps at most 25,000 units of a tenant, and each task makes two units.
    max: 12_500,
    value: 'N',
    default: '300',
    about: 'tasks, each played in both arms',
  },
  plan: {
    kind: 'text',
    value: 'FILE',
    about: 'faults, armed for the run (for the demo: 5 % of the read attempts fail)',
  },
  seed: seeded('decides values in tasks, and faults'),
  concurrency: {
    kind: 'integer',
    max: 512,
    value: 'N',
    default: '8',
    about: 'tasks at a time, both arms together',
  },
  format: {
    kind: 'choice',
    of: ['md', 'json', 'csv'],
    value: 'FORMAT',
    default: 'md',
    about: "md, json, or csv (the gateway's samples, a line per task and arm)",
  },
  summary: summaryOption,
  config: { kind: 'text', value: 'FILE', about: 'starts a gateway with this config for the run' },
  control: { kind: 'url', value: 'URL', about: 'uses the running gateway with this control port' },
  url: {
    kind: 'url',
    value: 'URL',
    about: `with --control, the gateway's data port (default: ${DEFAULT_DATA})`,
  },
  token: {
    kind: 'text',
    value: 'TOKEN',
    about: "the running gateway's control token (default: as for other commands)",
  },
} as const

const usage = `breakwater compare [--config FILE | --control URL] [--sets A,B --workload FILE]

  Plays the same tasks under two policy sets, each task once under either, with the same arguments and the same faults,
  and reports the better set. Without --config and --control, it plays a demo with servers of its own.

${optionLines(options)}

  Exit codes: 0; 1 when it could not run; 2 when the run proves nothing, or for wrong arguments.`

/** Poll interval of the journal, in milliseconds: the gateway keeps only the newest entries in memory. */
const FOLLOW_MS: Millis = 200

/** Maximum number of outcome reports per request. */
const MAX_REPORTS = 200

export function compare(args: readonly string[], out: Output, env: Env): Promise<number> {
  const line = { usage, options, positionals: [] }
  return runCommand(args, line, out, (values) => {
    const given = asked(values)
    // Further signals are ignored, so that faults are disarmed and servers ended; this takes seconds.
    return endingInOrder((stop, closing) => run(given, { closing, stop, out, env }))
  })
}

type Asked = Values<typeof options> & {
  readonly both: Sets
  /** The servers and policies of a gateway to start; default: those of `config`. */
  readonly origin?: Origin
}

/** Returns the checked options. Throws `Misuse`. */
function asked(values: Values<typeof options>): Asked {
  const { sets, workload, tasks, concurrency, config, control, url } = values
  const isDemo = config === undefined && control === undefined
  if (config !== undefined && control !== undefined) throw new Misuse('--config or --control, not both')
  if (url !== undefined && control === undefined) throw new Misuse('--url needs --control')
  if (!isDemo && sets === undefined) throw new Misuse('--sets A,B is missing')
  if (!isDemo && workload === undefined) throw new Misuse('--workload FILE is missing')
  if (tasks === 0) throw new Misuse('--tasks must be at least 1')
  if (concurrency === 0) throw new Misuse('--concurrency must be at least 1')
  const [a = '', b = '', ...more] = (sets ?? 'default,no_retries').split(',').map((name) => name.trim())
  if (a === '' || b === '' || more.length > 0)
    throw new Misuse(`--sets must be two names such as default,cautious, not "${sets}"`)
  return { ...values, both: { control: a, treatment: b } }
}

async function run(given: Asked, parts: Preparing): Promise<number> {
  const { stop, out } = parts
  const { summary } = given
  const noSummary = summary === undefined ? undefined : await unwritable(summary)
  if (noSummary !== undefined) throw new UnusableInput(`--summary ${summary} cannot be written: ${noSummary}`)
  const scene = await prepare(given, parts)
  // A run on a gateway of its own ends with this gateway.
  const facts = summary === undefined ? undefined : await gatewayFacts(scene.venue.control)
  const { report, played } = await play(scene, given, stop, out)
  out.stdout((await rendered(report, scene.venue, given.format)).trimEnd())
  for (const flaw of report.flaws) out.stderr(`breakwater: INVALID: ${flaw}`)
  for (const warning of report.warnings) out.stderr(`breakwater: warning: ${warning}`)
  if (summary !== undefined && facts !== undefined) {
    const { workload, plan, venue } = scene
    const pairs = { ...given, ...played, report, workload, plan, tools: venue.tools }
    const document = pairedDocument(pairs, facts)
    await writeReport(summary, documentLines([document])).catch(unusable)
    out.stderr(summaryHint(summary, 1))
  }
  return report.flaws.length === 0 ? 0 : UNSOUND
}

/** Settings of a comparison on a gateway of its own. */
export interface OwnComparison {
  readonly origin: Origin
  readonly both: Sets
  /** Files; the plan has faults for the run. */
  readonly workload: string
  readonly plan: string | undefined
  readonly tasks: number
  readonly seed: number
}

/** Compares two policy sets on a gateway of its own. Rejects with an `UnusableInput`. */
export async function compareOn(own: OwnComparison, parts: Preparing): Promise<PairedReport> {
  const concurrency = Number(options.concurrency.default)
  const none = { sets: undefined, control: undefined, url: undefined, token: undefined, summary: undefined }
  const given: Asked = { ...none, ...own, concurrency, format: 'json', config: own.origin.name }
  return (await play(await prepare(given, parts), given, parts.stop, parts.out)).report
}

/** Checks what can be checked of a comparison without starting a server. Rejects with an `UnusableInput`. */
export async function checkComparison(own: OwnComparison, env: Env): Promise<void> {
  const { origin, both: sets, tasks } = own
  const { plan } = await filesOf(own, env)
  if (plan !== undefined) demandFaults('staging', env)
  checkOwn(origin, { sets, tasks, withFaults: plan !== undefined })
}

/** Reads workload and plan of faults. Rejects with an `UnusableInput`. */
async function filesOf(
  { workload: file, plan }: { readonly workload: string; readonly plan: string | undefined },
  env: Env,
) {
  const read = await readWorkload(file)
  if (!read.ok) throw new UnusableInput(read.problems.join('\n'))
  return { read, plan: plan === undefined ? undefined : await planAt(plan, env) }
}

/** All parts of a run, checked before the first task. */
interface Scene {
  readonly workload: Workload
  readonly plan: Plan | undefined
  readonly venue: Venue
}

export interface Preparing {
  readonly closing: Closing
  readonly stop: Cancellation
  readonly out: Output
  readonly env: Env
}

/** Prepares a run, and starts the experiment if nothing prevents the run. Rejects with an `UnusableInput`. */
async function prepare(given: Asked, { closing, stop, out, env }: Preparing): Promise<Scene> {
  const { config, control, both: sets, tasks, url: data = DEFAULT_DATA, token } = given
  const isDemo = config === undefined && control === undefined
  const files = {
    workload: given.workload ?? shippedAt('orders.yaml'),
    plan: given.plan ?? (isDemo ? shippedAt('orders.plan.yaml') : undefined),
  }
  const { read, plan } = await filesOf(files, env)
  let venue: Venue
  if (control !== undefined)
    venue = await openRunning({ control, data, token, sets, tasks, closing, stop }, env)
  else {
    const variables = isDemo ? { NODE_ENV: env.NODE_ENV, ENVIRONMENT: env.ENVIRONMENT } : env
    if (plan !== undefined) demandFaults('staging', variables)
    const origin =
      given.origin ?? (config === undefined ? await demoOrigin(closing) : await originAt(config, env))
    const withFaults = plan !== undefined
    venue = await openOwn(origin, { sets, tasks, withFaults, env: variables, closing, stop })
  }
  const unknown = unknownTools(read.workload, read.origins, venue.tools)
  if (unknown.length > 0) throw new UnusableInput(unknown.join('\n'))
  if (plan !== undefined) {
    const left = await takeAwayLeft(venue.control)
    if (left.length > 0)
      out.stderr(`breakwater: removed faults left over by an earlier comparison: ${left.join(', ')}`)
    await replaceable(venue.control)
  }
  await venue.begin()
  return { workload: read.workload, plan, venue }
}

const succeeded = ({ outcome }: { readonly outcome: string }) => outcome === 'succeeded'

/** The fields of `/admin/servers` that this command reads. */
const serverStates = z.array(z.object({ name: z.string(), state: z.enum(['starting', 'up', 'down']) }))

/** The fields of an experiment's report that this command reads. */
const reported = z.object({
  state: z.string(),
  endedBecause: z.string().optional(),
  fates: z.record(z.string(), z.record(z.string(), z.number())),
  settings: z.array(z.object({ setting: z.string(), byArm: z.record(z.string(), z.string().optional()) })),
})

/** Plays all tasks with the faults armed, and compiles the report. */
async function play(
  scene: Scene,
  given: Asked,
  stop: Cancellation,
  out: Output,
): Promise<{ readonly report: PairedReport; readonly played: Played }> {
  const clock = systemClock
  const { workload, venue } = scene
  const decisions = new Decisions(prefixOf(workload, given.seed))
  const { patience: patienceMs, eras } = workload
  const places = given.concurrency
  const options = { url: venue.url, places, eras, patienceMs, clock, stop }
  const agents = await Agents.open(options).catch(unusable)
  try {
    const played = await playPairs(scene, given, { agents, clock, decisions, stop, out })
    return { report: await reportOn(scene, given, decisions, played), played }
  } catch (error) {
    if (!(error instanceof UnusableInput) || stop.reason !== INTERRUPTED) throw error
    const later =
      given.control === undefined
        ? ''
        : `\nsee the gateway's counts with: breakwater experiment report ${venue.experiment} --control ${given.control}`
    const why = `INVALID: it was stopped without a report: ${error.message}${later}`
    throw new UnusableInput(why, UNSOUND)
  }
}

interface Played {
  readonly twins: readonly Twins[]
  readonly names: readonly string[]
  /** Names of faults armed by others during the run. */
  readonly foreign: readonly string[]
  readonly flaws: readonly string[]
  /** Faults armed before the run began, with their counts during the run. */
  readonly counted: readonly ArmedFault[]
  readonly isStopped: boolean
  /** Failures of the fault engine during the run. */
  readonly engineErrors: number
  /** Start of the first pair, in milliseconds since the Unix epoch, and the duration of all pairs. */
  readonly startedAt: Millis
  readonly ranMs: Millis
}

interface PlayParts {
  /** Closed after the last pair. */
  readonly agents: Agents
  readonly clock: Clock
  readonly decisions: Decisions
  readonly stop: Cancellation
  readonly out: Output
}

/** Arms the plan, plays all pairs, and always removes the plan. */
async function playPairs(
  { workload, plan, venue }: Scene,
  given: Asked,
  { agents, clock, decisions, stop, out }: PlayParts,
): Promise<Played> {
  const { seed, tasks, concurrency } = given
  const { control, arms } = venue
  const outcomes = new Outcomes(venue)
  const show = new Progress(tasks, labelsOf(given.both))
  const endProgress = showProgress(out, clock, () => show.line())
  const began = { wall: clock.wall(), now: clock.now() }
  const over = new Cancellation()
  const flaws: string[] = []
  let why = 'it'
  let armed: ArmedPlan | undefined
  try {
    await decisions.follow(control)
    if (plan !== undefined && !stop.aborted) armed = await ArmedPlan.arm(control, plan, seed)
    const before = await stateOf(control)
    const follow = async () => {
      await decisions.follow(control)
      await outcomes.send()
    }
    const following = repeat(clock, over, {
      // A renewal fails silently if a fault has ended; the check after the run finds this.
      task: () => Promise.all([follow(), armed?.renew()]),
      onSilent() {
        why = `the gateway was silent for ${formatDuration(RUN_PATIENCE_MS)}: the run`
        stop.abort('the gateway is silent')
      },
    })
    const twins = await playTwins({
      workload,
      tasks,
      seed,
      concurrency,
      arms,
      clock,
      nameOf(step) {
        const found = exposedName(step, venue.tools)
        return typeof found === 'string' ? found : step.tool
      },
      agentAt: (place, side, era) => agents.at(place, side, era),
      stop,
      onPlayed(task, side, { outcome }) {
        outcomes.add(task, side, outcome)
        show.played(side, outcome === 'succeeded')
      },
    })
    over.abort('over')
    await following
    const far = `${twins.length} of ${numbered(tasks, 'pair')}`
    const after = await follow()
      .then(() => stateOf(control))
      .catch((error: Error) => {
        if (stop.aborted) throw error
        throw new UnusableInput(`the gateway was lost after ${far}: ${error.message}`)
      })
    if (stop.aborted) flaws.push(`${why} was stopped after ${far}`)
    const names = namesOf(before)
    const ended = names.filter((name) => !namesOf(after).includes(name))
    if (ended.length > 0) flaws.push(`faults ended before the run did: ${ended.join(', ')}`)
    const engineErrors = after.engineErrors - before.engineErrors
    if (engineErrors > 0) flaws.push(`the fault engine failed ${numbered(engineErrors, 'time')}`)
    const foreign = [...new Set([...decisions.injected, ...namesOf(after)])].filter(
      (name) => !names.includes(name),
    )
    return {
      twins,
      names,
      foreign,
      flaws,
      counted: before.armed.flatMap((fault) => {
        const now = after.armed.find(({ name }) => name === fault.name)
        return now === undefined ? [] : [since(fault, now)]
      }),
      isStopped: stop.aborted,
      engineErrors,
      startedAt: began.wall,
      ranMs: clock.now() - began.now,
    }
  } finally {
    over.abort('over')
    // Both ends run in parallel, so a hanging gateway costs only one timeout.
    const [problem] = await Promise.all([armed?.end(), agents.close()])
    if (problem !== undefined) out.stderr(`breakwater: ${problem}`)
    endProgress()
  }
}

const namesOf = ({ armed }: { readonly armed: readonly ArmedFault[] }) => armed.map(({ name }) => name)

interface Repeated {
  readonly task: () => Promise<unknown>
  /** Called when every attempt has failed for `RUN_PATIENCE_MS`. */
  readonly onSilent: () => void
}

/** Repeats a task until `over` aborts. Ignores single failures, because the end of the run checks the results. */
async function repeat(clock: Clock, over: Cancellation, { task, onSilent }: Repeated): Promise<void> {
  let heardAt = clock.now()
  while (!over.aborted) {
    await clock.sleep(FOLLOW_MS, over).catch(() => undefined)
    if (over.aborted) return
    try {
      await task()
      heardAt = clock.now()
    } catch {
      if (clock.now() - heardAt >= RUN_PATIENCE_MS) return onSilent()
    }
  }
}

async function reportOn(
  { workload, plan, venue }: Scene,
  { seed, tasks, both }: Asked,
  decisions: Decisions,
  { twins, names, foreign, flaws: met, startedAt, ranMs }: Played,
): Promise<PairedReport> {
  const { control, arms, experiment } = venue
  const flaws = [...met]
  if (twins.length > 0 && !twins.some(({ control, treatment }) => succeeded(control) || succeeded(treatment)))
    flaws.push('no task succeeded in either arm, so the policies cannot be compared')
  // With faults, a server may be down at the end, because a fault has ended its process.
  if (plan === undefined)
    for (const { name, state } of await ask(control, { method: 'GET', path: '/admin/servers' }, serverStates))
      if (state !== 'up' && serversOf(workload, venue.tools).has(name))
        flaws.push(`server ${name} is ${state} at the end, so calls failed for this reason`)
  const path = `/admin/experiments/${encodeURIComponent(experiment)}`
  const told = await ask(control, { method: 'GET', path: `${path}/report` }, reported)
  if (told.state !== 'running') flaws.push(`the experiment ended before the run did: ${told.endedBecause}`)
  const pairs = withAttempts(twins, samplesIn(await samplesOf(venue)), arms, flaws)
  const decided = decisions.report()
  if (decided.first.different > 0)
    flaws.push(`${decided.first.different} first attempts met other faults than their twins`)
  if (decided.isIncomplete) flaws.push('the journal dropped decisions before they were read')
  const labels = labelsOf(both)
  const bySet = <Value>(byArm: Readonly<Record<string, Value>>): Readonly<Record<string, Value>> => {
    const sides = (['control', 'treatment'] as const).filter((side) => Object.hasOwn(byArm, arms[side]))
    return Object.fromEntries(sides.map((side) => [labels[side], byArm[arms[side]]!]))
  }
  return {
    ...compareTwins(pairs, { ...labels, flaws }),
    workload: workload.name,
    seed,
    startedAt: new Date(startedAt).toISOString(),
    ranMs,
    planned: tasks,
    faults: {
      names: [...names, ...foreign],
      fates: bySet(told.fates),
      first: decided.first,
      later: decided.later,
      examples: decided.examples,
    },
    settings: told.settings.map(({ setting, byArm }) => ({ setting, byArm: bySet(byArm) })),
    flaws,
    warnings: foreign.map(
      (name) => `somebody else armed ${name} during the run: tasks of both arms may have met it`,
    ),
    twins: pairs,
  }
}

/** The policy sets, with different labels when a set is compared with itself. */
const labelsOf = ({ control, treatment }: Sets): Sets =>
  control === treatment ? { control, treatment: `${treatment} again` } : { control, treatment }

/**
 * Returns the twins with the gateway's counts. Reports a flaw when the gateway counted other calls than the agents
 * made.
 */
function withAttempts(
  twins: readonly Twins[],
  samples: ReturnType<typeof samplesIn>,
  arms: Venue['arms'],
  flaws: string[],
): TwinPair[] {
  let differing = 0
  const pairs = twins.map(({ task, kind, ...both }): TwinPair => {
    const twin = (side: Side) => {
      const sampled = samples.get(arms[side])?.get(task)
      if (sampled?.calls !== both[side].calls) differing++
      return { ...both[side], attempts: sampled?.attempts ?? NaN }
    }
    return { task, kind, control: twin('control'), treatment: twin('treatment') }
  })
  if (differing > 0)
    flaws.push(
      `for ${numbered(differing, 'task')}, the gateway counted other calls in the arm than the agents made`,
    )
  return pairs
}

function samplesOf({ control, experiment }: Venue): Promise<string> {
  const path = `/admin/experiments/${encodeURIComponent(experiment)}/samples`
  return ask(control, { method: 'GET', path, isText: true }, z.string())
}

/** Collects the outcomes of tasks, and sends them to the gateway. */
class Outcomes {
  readonly #venue: Venue
  #waiting: object[] = []

  constructor(venue: Venue) {
    this.#venue = venue
  }

  add(intent: string, side: Side, outcome: 'succeeded' | 'failed'): void {
    const { experiment, arms } = this.#venue
    this.#waiting.push({ intent, outcome, arm: `${experiment}/${arms[side]}` })
  }

  /** Sends all collected outcomes. Rejects with an `UnusableInput`. */
  async send(): Promise<void> {
    while (this.#waiting.length > 0) {
      const body = this.#waiting.splice(0, MAX_REPORTS)
      await ask(this.#venue.control, { method: 'POST', path: '/admin/outcomes', body }, anything)
    }
  }
}

const BAR = 24

class Progress {
  readonly #tasks: number
  readonly #labels: Sets
  readonly #counts = { control: { all: 0, good: 0 }, treatment: { all: 0, good: 0 } }

  constructor(tasks: number, labels: Sets) {
    this.#tasks = tasks
    this.#labels = labels
  }

  played(side: Side, isGood: boolean): void {
    this.#counts[side].all++
    if (isGood) this.#counts[side].good++
  }

  line(): string {
    const { control, treatment } = this.#counts
    const pairs = Math.min(control.all, treatment.all)
    const filled = Math.floor((BAR * (control.all + treatment.all)) / (2 * this.#tasks))
    const bar = `${'#'.repeat(filled)}${'.'.repeat(BAR - filled)}`
    const good = (side: Side) => `${this.#labels[side]} ${this.#counts[side].good}/${this.#counts[side].all}`
    return `[${bar}] ${pairs} of ${this.#tasks} pairs; succeeded: ${good('control')}, ${good('treatment')}`
  }
}

async function rendered(report: PairedReport, venue: Venue, format: string): Promise<string> {
  switch (format) {
    case 'json':
      return JSON.stringify(report, undefined, 2)
    case 'csv':
      return samplesOf(venue)
    default:
      return pairedMarkdown(report)
  }
}
