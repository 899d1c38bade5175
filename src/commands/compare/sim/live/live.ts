import type { Env } from '../../../../config/files/interpolate.ts'
import { Cancellation } from '../../../../mesh/cancel.ts'
import { keepAlive, type Millis, systemClock } from '../../../../mesh/clock.ts'
import { type Paint, plain } from '../../../../telemetry/colours.ts'
import { Misuse, type Output, type Values } from '../../../shared/arguments.ts'
import type { liveOptions } from './options.ts'
import { onSignals } from '../../../shared/signals.ts'
import { type Act, acts } from './faults.ts'
import { newTally, type Tally } from '../../../../load/shop-agents.ts'
import { DemoError } from './operator.ts'
import { between, gatesIn, type Reading, readingOf, totalOf } from './reading.ts'
import { MARGIN_MS, openStage, type Stage } from './stage.ts'
import { check, type Known } from './sums.ts'
import { faultLines, line, type PhaseView, phaseLines, sumOf, table, type View } from './view.ts'

/** Exit codes: what could not run, and what does not add up. */
const FAILED = 1
const WRONG = 2

/** How often the table is drawn, in milliseconds. */
const LOOK_MS: Millis = 1_000

/** How often there is a line where nothing can be drawn in place. */
const LOOKS_A_LINE = 5

/** Longest run: its faults have to end by themselves, too. */
const LONGEST_MS: Millis = 3_600_000

/** `breakwater demo --live`: resolves to the exit code. Throws `Misuse`. */
export async function live(values: Values<typeof liveOptions>, out: Output, env: Env): Promise<number> {
  const { duration: durationMs, seed } = values
  if (durationMs > LONGEST_MS) throw new Misuse('--duration must be 1h at most')
  const stop = new Cancellation()
  const hurry = () => {
    // A second signal: children are ended by the process that looks after them.
    if (stop.aborted) process.exit(FAILED)
    stop.abort('signal')
  }
  const off = onSignals(['SIGINT', 'SIGTERM', 'SIGHUP'], hurry)
  const letEnd = keepAlive()
  let stage: Stage | undefined
  try {
    const options = { durationMs, seed, withPolicies: !values['no-policies'] }
    stage = await openStage(options, env)
    const show = new Show(out)
    const known = await new Run(stage, { durationMs, seed, stop, show }).run()
    return summary(known, { stopped: stop.aborted, show, out })
  } catch (error) {
    if (!(error instanceof DemoError)) throw error
    out.stderr(`breakwater: ${error.message}`)
    return FAILED
  } finally {
    await stage?.close()
    letEnd()
    off()
  }
}

/** Shows how it goes: a table that stays in its place, or a line now and then. */
class Show {
  readonly paint: Paint
  readonly #out: Output
  #looks = 0
  #title = ''

  constructor(out: Output) {
    this.paint = out.paint ?? plain
    this.#out = out
  }

  look(view: View): void {
    const isDue = view.title !== this.#title || this.#looks++ % LOOKS_A_LINE === 0
    this.#title = view.title
    if (this.#out.page !== undefined) this.#out.page(table(view, this.paint))
    else if (isDue) this.#out.stdout(line(view))
  }

  /** Says the last words, in place of the table. */
  end(lines: readonly string[]): void {
    if (this.#out.page !== undefined) this.#out.page(lines)
    else for (const text of lines) this.#out.stdout(text)
  }
}

interface RunOptions {
  readonly durationMs: Millis
  readonly seed: number
  readonly stop: Cancellation
  readonly show: Show
}

/** State at the beginning of a phase. */
interface Start {
  readonly name: string
  readonly reading: Reading
  readonly tally: Tally
}

/** One act after the other. Between two of them no task is under way, so that each adds up by itself. */
class Run {
  readonly #stage: Stage
  readonly #options: RunOptions
  readonly #startedAt = systemClock.now()
  readonly #phases: PhaseView[] = []
  #isArmed = false

  constructor(stage: Stage, options: RunOptions) {
    this.#stage = stage
    this.#options = options
  }

  async run(): Promise<Known> {
    const { operator, load, placed } = this.#stage
    await load.warmUp()
    const first = { name: 'all', reading: await this.#reading(), tally: { ...load.tally } }
    for (const [index, act] of acts.entries())
      if (!this.#options.stop.aborted) await this.#play(act, acts[index + 1])
    const { faults } = await operator.chaos()
    const { reading, tally } = this.#phaseSince(first, await this.#reading())
    return { reading, tally, phases: this.#phases, faults, acknowledged: load.acknowledged, placed }
  }

  /** Has the agents at work while the faults of the act are armed. */
  async #play(act: Act, next: Act | undefined): Promise<void> {
    const { load } = this.#stage
    const { durationMs, stop } = this.#options
    const start = { name: act.name, reading: await this.#reading(), tally: { ...load.tally } }
    if (act.faults.length > 0) await this.#arm(act)
    const over = new Cancellation()
    const running = load.run(over)
    try {
      await this.#watch(act.title, durationMs * act.share, start)
    } finally {
      over.abort('over')
    }
    // Before the last tasks end: what faults hold back is let go.
    if (stop.aborted || next?.faults.length === 0) await this.#kill()
    await running
    this.#phases.push(this.#phaseSince(start, await this.#reading()))
  }

  async #arm({ title, faults }: Act): Promise<void> {
    const { operator } = this.#stage
    const { seed, durationMs } = this.#options
    const ttl = durationMs + MARGIN_MS
    await operator.plan({ seed, faults: faults.map((fault) => ({ ...fault, ttl })) })
    if (!this.#isArmed) await operator.arm(title)
    this.#isArmed = true
  }

  async #kill(): Promise<void> {
    if (this.#isArmed) await this.#stage.operator.kill('the demo has seen enough')
    this.#isArmed = false
  }

  /** Looks on for so long. */
  async #watch(title: string, durationMs: Millis, start: Start): Promise<void> {
    const { stop } = this.#options
    const endsAt = systemClock.now() + durationMs
    while (!stop.aborted) {
      await this.#look(title, start)
      const leftMs = endsAt - systemClock.now()
      if (leftMs <= 0) return
      await systemClock.sleep(Math.min(LOOK_MS, leftMs), stop).catch(() => undefined)
    }
  }

  async #look(title: string, start: Start): Promise<void> {
    const { operator, load } = this.#stage
    const { durationMs, show } = this.#options
    await operator.report(load.takeReports())
    const samples = await operator.metrics()
    const { faults } = await operator.chaos()
    const reading = readingOf(samples)
    show.look({
      title: `${start.name}: ${title}`,
      elapsedMs: systemClock.now() - this.#startedAt,
      totalMs: durationMs,
      phases: [...this.#phases, this.#phaseSince(start, reading)],
      reading,
      gates: gatesIn(samples),
      faults: names,
      armed: new Set(faults.flatMap(({ armed, name }) => (armed ? name : []))),
    })
  }

  /** With what agents have reported until now. */
  async #reading(): Promise<Reading> {
    const { operator, load } = this.#stage
    await operator.report(load.takeReports())
    return readingOf(await operator.metrics())
  }

  #phaseSince({ name, reading: before, tally: earlier }: Start, reading: Reading): PhaseView {
    const tally = newTally()
    for (const key of Object.keys(tally) as (keyof Tally)[])
      tally[key] = this.#stage.load.tally[key] - earlier[key]
    return { name, reading: between(before, reading), tally }
  }
}

/** All faults of all acts. */
const names = [...new Set(acts.flatMap(({ faults }) => faults.map(({ name }) => name)))]

interface Told {
  readonly stopped: boolean
  readonly show: Show
  readonly out: Output
}

/** Says what came of it, and whether it adds up. Returns the exit code. */
function summary(known: Known, { stopped, show, out }: Told): number {
  const { paint } = show
  const { reading, phases, tally, placed, acknowledged } = known
  const total = totalOf(reading)
  const { checked, wrong } = check(known)
  const flaws = [...wrong, ...(stopped || total.injected > 0 ? [] : ['no fault was injected'])]
  show.end([
    ...phaseLines(phases, paint),
    '',
    ...faultLines({ faults: names, armed: new Set(), reading }, paint),
    '',
    `Injected into calls of agents: ${sumOf(total)}.`,
    `Injected into what the gateway asks by itself: ${reading.discovery}.`,
    `The agents counted ${tally.calls} calls: ${tally.right} right, ${tally.wrong} wrong, ${tally.flagged} flagged, ${tally.errors} errors.`,
    `Orders: ${acknowledged.length} acknowledged, ${placed.size} placed, ${[...placed.values()].filter((times) => times > 1).length} of them twice.`,
    'ETA: effective tool availability, the share with a reply that is not known to be wrong: of the servers by',
    'single tries, of the agents by calls. Unchecked: replies that the gateway could not check, which count as good.',
    'Right is what the agents know to be right.',
    ...(stopped ? ['Stopped early.'] : []),
    ...(flaws.length === 0 ? [paint('good', `All ${checked} sums add up.`)] : []),
  ])
  for (const flaw of flaws) out.stderr(`breakwater: it does not add up: ${flaw}`)
  return flaws.length === 0 ? 0 : WRONG
}
