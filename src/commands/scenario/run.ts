import type { Cancellation } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { formatDuration } from '../../units/duration.ts'
import { aimed, type Aim } from './aimed.ts'
import { ControlError, type FaultCounts, type Faults } from './control.ts'
import type { Scenario } from './library.ts'

export interface RunOptions extends Aim {
  readonly durationMs: Millis
}

export interface RunParts {
  readonly gateway: Faults
  readonly clock: Clock
  /** Ends the run early. */
  readonly stop: Cancellation
  /** Hears how it goes, line by line. */
  readonly say: (line: string) => void
}

/** A fault of a run, with what it did as far as is known. */
export interface Injected {
  readonly name: string
  readonly id: string
  readonly counts: FaultCounts | undefined
}

/** The same while its counts still change. */
type Counting = { -readonly [Key in keyof Injected]: Injected[Key] }

/** What came of a run. */
export interface Run {
  readonly faults: readonly Injected[]
  /** Why it proves nothing; empty when it is valid. */
  readonly flaws: readonly string[]
}

/** How often the counts are asked for, in milliseconds. */
const LOOK_MS: Millis = 1_000

/** How often progress is told. */
const LOOKS_A_LINE = 5

/** How much longer than the run its faults would stay if nobody cleared them, in milliseconds. */
const MARGIN_MS: Millis = 30_000

/** How often clearing a fault is tried. */
const CLEAR_TRIES = 3

/** Injects the faults of a scenario, waits, and takes them away again, whatever happens. Rejects with a `ControlError`. */
export async function runScenario(scenario: Scenario, options: RunOptions, parts: RunParts): Promise<Run> {
  const { gateway, say } = parts
  const before = await gateway.state()
  const faults: Counting[] = []
  const flaws: string[] = []
  try {
    for (const written of scenario.faults) {
      if (parts.stop.aborted) break
      const name = String(written.name)
      const fault = aimed(written, options)
      const { id, durationMs } = await gateway.inject(fault, options.durationMs + MARGIN_MS)
      faults.push({ name, id, counts: undefined })
      if (durationMs < options.durationMs)
        throw new ControlError(
          `faults last no longer than chaos.maxTtl, which is ${formatDuration(durationMs)}`,
        )
      say(`injected ${name} (${id}) at ${fault.target}`)
    }
    await watch(faults, options.durationMs, flaws, parts)
  } finally {
    await clearAll(faults, parts)
  }
  if (parts.stop.aborted) flaws.push('it was stopped early')
  const after = await gateway.state()
  if (after.engineErrors > before.engineErrors)
    flaws.push(`the engine failed ${after.engineErrors - before.engineErrors} times`)
  flaws.push(...without(faults, after.mode))
  return { faults, flaws }
}

/** Keeps the counts up to date until the time is up: once a fault is cleared, nobody knows them any more. */
async function watch(
  faults: Counting[],
  durationMs: Millis,
  flaws: string[],
  { gateway, clock, stop, say }: RunParts,
): Promise<void> {
  const endsAt = clock.now() + durationMs
  for (let looks = 1; !stop.aborted; looks++) {
    const leftMs = Math.max(0, endsAt - clock.now())
    await clock.sleep(Math.min(LOOK_MS, leftMs), stop).catch(() => undefined)
    const { state, faults: listed } = await gateway.state()
    for (const fault of faults) fault.counts = listed.find(({ id }) => id === fault.id) ?? fault.counts
    const lost = faults.filter(({ id }) => !listed.some((other) => other.id === id))
    if (lost.length > 0) {
      flaws.push(`${lost.map(({ name }) => name).join(', ')} ended before the run did (chaos is ${state})`)
      return
    }
    if (clock.now() >= endsAt) return
    if (looks % LOOKS_A_LINE === 0) say(progress(faults, Math.max(0, endsAt - clock.now())))
  }
}

function progress(faults: readonly Injected[], leftMs: Millis): string {
  const hits = faults.map(({ name, counts }) => `${name} ${counts?.hits ?? 0}`).join(', ')
  return `${formatDuration(Math.round(leftMs / 1_000) * 1_000)} left; injected: ${hits}`
}

async function clearAll(faults: readonly Injected[], { gateway, say }: RunParts): Promise<void> {
  for (const { name, id } of faults) {
    for (let tries = 1; ; tries++) {
      try {
        await gateway.clear(id)
        break
      } catch (error) {
        if (tries < CLEAR_TRIES) continue
        say(`cannot clear ${name} (${id}), it ends by itself soon after: ${(error as Error).message}`)
        break
      }
    }
  }
}

function without(faults: readonly Injected[], mode: string): string[] {
  const sum = (count: (counts: FaultCounts) => number) =>
    faults.reduce((total, { counts }) => total + (counts === undefined ? 0 : count(counts)), 0)
  if (sum(({ hits }) => hits) > 0) return []
  if (mode === 'shadow') return ['nothing was injected: chaos.mode is shadow']
  const decided = sum((counts) => counts.decided)
  if (decided === 0) return ['nothing was injected: no call matched. Is there any traffic to these servers?']
  const hint = 'tools that are not known to be read-only are hit only with --allow-writes'
  return [`nothing was injected into ${decided} calls that matched; ${hint}`]
}
