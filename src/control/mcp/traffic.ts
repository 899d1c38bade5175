import { type Figures, Tally } from '../../experiments/guarded/meter.ts'
import type { Call, Outcome } from '../../mesh/call.ts'
import { wentWrong } from '../../mesh/classify.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { rejectionsIn } from '../../mesh/record.ts'

/** The gateway keeps this number of minutes of traffic. */
export const KEPT_MINUTES = 15

const MINUTE_MS: Millis = 60_000

/** Stands for the tools of a server that are in none of its lists; no tool has this name. */
export const UNLISTED = 'tools in no list'

/** Most tools with figures of their own, and most tenants or tasks noted in a minute of a tool. */
const MAX_TOOLS = 1_000

/** Limit for the number of noted tenants, and of noted tasks, in a minute of a tool. */
const MAX_NAMES = 256

interface Minute {
  /** Number of the minute, by the monotonic clock. */
  readonly minute: number
  readonly tally: Tally
  readonly tenants: Set<string>
  readonly tasks: Set<string>
}

/** The recent calls of some tools. */
export interface Recent {
  readonly figures: Figures
  readonly perMinute: number
  /** Number of distinct tenants. The gateway notes at most 256 tenants in a minute of a tool. */
  readonly tenants: number
  /** Number of distinct tasks. The gateway notes at most 256 tasks in a minute of a tool. */
  readonly tasks: number
  /** Span of the figures, in minutes. */
  readonly minutes: number
}

/** The tool calls of the last 15 minutes, by server and tool. */
export class RecentTraffic {
  readonly #clock: Clock
  readonly #since: Millis
  readonly #tools = new Map<
    string,
    { readonly server: string; readonly tool: string; readonly minutes: Minute[] }
  >()

  constructor(clock: Clock) {
    this.#clock = clock
    this.#since = clock.now()
  }

  /** Counts an ended tool call. Agents may call any name, so tools in no list have figures together. */
  add(
    { server, tool: called, tenant, record }: Call,
    outcome: Outcome,
    tookMs: Millis,
    isListed = true,
  ): void {
    if (called === undefined) return
    const tool = isListed ? called : UNLISTED
    const key = JSON.stringify([server, tool])
    const known = this.#tools.get(key) ?? { server, tool, minutes: [] }
    // The latest call is last, so that the first tool is the one without a call for the longest time.
    this.#tools.delete(key)
    if (this.#tools.size >= MAX_TOOLS) this.#tools.delete(this.#tools.keys().next().value!)
    this.#tools.set(key, known)
    const minute = Math.floor(this.#clock.now() / MINUTE_MS)
    let last = known.minutes.at(-1)
    if (last?.minute !== minute) {
      last = { minute, tally: new Tally(), tenants: new Set(), tasks: new Set() }
      known.minutes.push(last)
      while (known.minutes[0]!.minute <= minute - KEPT_MINUTES) known.minutes.shift()
    }
    const isRejected = outcome.kind === 'rejected'
    last.tally.add({
      isWrong: wentWrong(outcome, record),
      isRejected,
      attempts: record.attempts,
      rejections: rejectionsIn(record, outcome),
      tookMs,
    })
    if (last.tenants.size < MAX_NAMES) last.tenants.add(tenant)
    if (record.intent !== undefined && last.tasks.size < MAX_NAMES) last.tasks.add(record.intent.id)
  }

  /** Returns the recent calls of matching tools; undefined without calls. */
  of(isMeant: (server: string, tool: string) => boolean, minutes = KEPT_MINUTES): Recent | undefined {
    const now = this.#clock.now()
    const from = Math.floor(now / MINUTE_MS) - minutes
    const all = new Tally()
    const [tenants, tasks] = [new Set<string>(), new Set<string>()]
    for (const { server, tool, minutes: kept } of this.#tools.values()) {
      if (!isMeant(server, tool)) continue
      for (const one of kept) {
        if (one.minute <= from) continue
        all.merge(one.tally)
        for (const name of one.tenants) tenants.add(name)
        for (const name of one.tasks) tasks.add(name)
      }
    }
    if (all.calls === 0) return undefined
    const span = Math.min(minutes, Math.max(1 / 6, (now - this.#since) / MINUTE_MS))
    const perMinute = Math.round((all.calls / span) * 10) / 10
    return {
      figures: all.figures(),
      perMinute,
      tenants: tenants.size,
      tasks: tasks.size,
      minutes: Math.round(span * 10) / 10,
    }
  }
}
