import type { Env } from '../../../../config/files/interpolate.ts'
import { z } from 'zod'
import type { Status } from '../../../../chaos/control/status.ts'
import { Cancellation } from '../../../../mesh/cancel.ts'
import { type Millis, systemClock } from '../../../../mesh/clock.ts'
import { type Paint, plain } from '../../../../telemetry/colours.ts'
import { Misuse, type Output, type Values } from '../../../shared/arguments.ts'
import type { liveOptions } from './options.ts'
import { type Sample, samplesIn } from '../../../shared/samples.ts'
import { type Closing, endingInOrder } from '../../../shared/signals.ts'
import { anything, ask } from '../../evidence.ts'
import { type Act, acts } from './faults.ts'
import type { Tally } from '../../../../load/shop-agents.ts'
import { between, gatesIn, less, type Reading, readingOf, totalOf } from './reading.ts'
import { type DemoStage, MARGIN_MS, openDemo } from './stage.ts'
import { check, type Known } from './sums.ts'
import { faultLines, line, type PhaseView, phaseLines, sumOf, table, type View } from './view.ts'

/** Exit code when the counts of gateway, agents and servers do not agree. */
const WRONG = 2

/** Refresh interval of the table, in milliseconds. */
const LOOK_MS: Millis = 1_000

/** Number of refreshes per printed line when standard output is no terminal. */
const LOOKS_A_LINE = 5

/** Longest run, because the faults' own lifetime is limited too. */
const LONGEST_MS: Millis = 3_600_000

/** `breakwater demo --live`: resolves to the exit code. Throws `Misuse`. */
export async function live(values: Values<typeof liveOptions>, out: Output, env: Env): Promise<number> {
  const { duration: durationMs, seed } = values
  if (durationMs > LONGEST_MS) throw new Misuse('--duration must be 1h at most')
  const task = async (stop: Cancellation, closing: Closing) => {
    const stage = await openDemo({ durationMs, seed, withPolicies: !values['no-policies'] }, closing, env)
    const show = new Show(out)
    const known = await new Run(stage, { durationMs, seed, stop, show }).run()
    return summary(known, { stopped: stop.aborted, show, out })
  }
  // A second signal ends this process at once; a separate process then ends the child processes.
  return endingInOrder(task, () => process.exit(1))
}

/** Shows the progress: a table in place, or a line now and then. */
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

interface Start {
  readonly name: string
  readonly reading: Reading
  readonly tally: Tally
}

/**
 * Plays the acts in turn. No task is under way between two acts, so the counts of each act must agree by themselves.
 */
class Run {
  readonly #stage: DemoStage
  readonly #options: RunOptions
  readonly #startedAt = systemClock.now()
  readonly #phases: PhaseView[] = []
  #isArmed = false

  constructor(stage: DemoStage, options: RunOptions) {
    this.#stage = stage
    this.#options = options
  }

  async run(): Promise<Known> {
    const { load, placed } = this.#stage
    await load.warmUp()
    const first = { name: 'all', reading: await this.#reading(), tally: { ...load.tally } }
    for (const [index, act] of acts.entries())
      if (!this.#options.stop.aborted) await this.#play(act, acts[index + 1])
    const { faults } = await this.#chaos()
    const { reading, tally } = this.#phaseSince(first, await this.#reading())
    return { reading, tally, phases: this.#phases, faults, acknowledged: load.acknowledged, placed }
  }

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
    // Kills the faults before the last tasks end, so that calls held by faults continue.
    if (stop.aborted || next?.faults.length === 0) await this.#kill()
    await running
    this.#phases.push(this.#phaseSince(start, await this.#reading()))
  }

  async #arm({ title, faults }: Act): Promise<void> {
    const { seed, durationMs } = this.#options
    const ttl = durationMs + MARGIN_MS
    const body = { seed, faults: faults.map((fault) => ({ ...fault, ttl })) }
    // If faults are armed, the faults of a new plan are armed too.
    await ask(this.#stage.control, { method: 'PUT', path: '/admin/chaos?by=demo', body }, anything)
    if (!this.#isArmed) await this.#turn('arm', title)
    this.#isArmed = true
  }

  async #kill(): Promise<void> {
    if (this.#isArmed) await this.#turn('kill', 'the demo has seen enough')
    this.#isArmed = false
  }

  async #turn(what: 'arm' | 'kill', why: string): Promise<void> {
    const request = { method: 'POST', path: `/admin/chaos/${what}`, body: { by: 'demo', why } } as const
    await ask(this.#stage.control, request, anything)
  }

  #chaos(): Promise<Status> {
    return ask(this.#stage.control, { method: 'GET', path: '/admin/chaos' }, z.custom<Status>())
  }

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
    const { durationMs, show } = this.#options
    const samples = await this.#samples()
    const { faults } = await this.#chaos()
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

  async #reading(): Promise<Reading> {
    return readingOf(await this.#samples())
  }

  /** Reads the metrics, after sending the agents' pending reports. */
  async #samples(): Promise<readonly Sample[]> {
    const { control, load } = this.#stage
    const body = load.takeReports()
    if (body.length > 0) await ask(control, { method: 'POST', path: '/admin/outcomes', body }, anything)
    return samplesIn(await ask(control, { method: 'GET', path: '/metrics', isText: true }, z.string()))
  }

  #phaseSince({ name, reading: before, tally: earlier }: Start, reading: Reading): PhaseView {
    const tally = less(this.#stage.load.tally, earlier)
    return { name, reading: between(before, reading), tally }
  }
}

const names = [...new Set(acts.flatMap(({ faults }) => faults.map(({ name }) => name)))]

interface Told {
  readonly stopped: boolean
  readonly show: Show
  readonly out: Output
}

/** Prints the result, and each count that does not agree with the others. Returns the exit code. */
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
    `Injected into the gateway's own requests: ${reading.discovery}.`,
    `The agents counted ${tally.calls} calls: ${tally.right} right, ${tally.wrong} wrong, ${tally.flagged} flagged, ${tally.errors} errors.`,
    `Orders: ${acknowledged.length} acknowledged, ${placed.size} placed, ${[...placed.values()].filter((times) => times > 1).length} of them twice.`,
    'ETA: effective tool availability, the share of good replies: for servers by attempt, for agents by call.',
    'Good: not known to be wrong. Unchecked: the gateway could not check the reply; it counts as good.',
    'Right: the agents know the reply is right.',
    ...(stopped ? ['Stopped early.'] : []),
    ...(flaws.length === 0 ? [paint('good', `All ${checked} sums add up.`)] : []),
  ])
  for (const flaw of flaws) out.stderr(`breakwater: it does not add up: ${flaw}`)
  return flaws.length === 0 ? 0 : WRONG
}
