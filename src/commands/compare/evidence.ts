import { z } from 'zod'
import { printable } from '../../telemetry/printable.ts'
import { UnusableInput } from '../shared/arguments.ts'
import type { Control, Request } from '../shared/control.ts'

/** Facts about a run that the gateway knows, and its agents do not. */

/**
 * Asks the gateway over its control port. Rejects with an `UnusableInput`, also where the answer has another shape than
 * `answer`: what listens there may be anything.
 */
export async function ask<Answer>(
  control: Control,
  request: Request,
  answer: z.ZodType<Answer>,
): Promise<Answer> {
  const answered = await control(request)
  if (!answered.ok) throw new UnusableInput(answered.message)
  const read = answer.safeParse(answered.value)
  if (read.success) return read.data
  const at = read.error.issues[0]?.path.map(String).join('.') ?? ''
  const where = at === '' ? '' : `, at ${printable(at.slice(0, 80))}`
  throw new UnusableInput(
    `the control port does not answer as that of a gateway does: ${request.method} ${request.path}${where}`,
  )
}

/** An answer of which nothing is needed. */
export const anything = z.unknown()

/** Counts that the gateway sampled of a task in one arm. */
export interface Sampled {
  readonly calls: number
  readonly attempts: number
}

/** By arm, then by task: what is told as CSV of the units of an experiment. */
export function samplesIn(csv: string): ReadonlyMap<string, ReadonlyMap<string, Sampled>> {
  const [head = [], ...rows] = rowsOf(csv)
  const [unit, arm, calls, attempts] = ['unit', 'arm', 'calls', 'attempts'].map((name) => head.indexOf(name))
  const byArm = new Map<string, Map<string, Sampled>>()
  for (const row of rows) {
    const [name = '', key = ''] = [row[arm!], row[unit!]]
    // A unit is who says so and the tenant, then the name of the task.
    const task = key.slice(key.indexOf('/') + 1)
    const ofArm = byArm.get(name) ?? new Map<string, Sampled>()
    byArm.set(name, ofArm)
    ofArm.set(task, { calls: Number(row[calls!]), attempts: Number(row[attempts!]) })
  }
  return byArm
}

/** The fields of a CSV text (RFC 4180). */
function rowsOf(csv: string): string[][] {
  const rows: string[][] = []
  let row: string[] = []
  for (const [, quoted, plain = '', end] of csv.matchAll(/(?:"((?:[^"]|"")*)"|([^",\n]*))(,|\n|$)/g)) {
    row.push(quoted?.replaceAll('""', '"') ?? plain)
    if (end === ',') continue
    if (row.length > 1) rows.push(row)
    row = []
  }
  return rows
}

/** How decisions on the same attempt of twins went together. */
export interface DecisionCounts {
  /** Decided in both arms. */
  readonly twice: number
  /** Decisions made in both arms that differ between the arms. */
  readonly different: number
  /** Decided in one arm only: the other one did not get so far, or made no such attempt. */
  readonly once: number
}

export interface DecisionsReport {
  /** The first attempts of calls: twins that make the same call meet the same. */
  readonly first: DecisionCounts
  /** Further attempts, which policies make. */
  readonly later: DecisionCounts
  /** Calls of which a first attempt was decided otherwise; a few of them. */
  readonly examples: readonly string[]
  /** Whether the journal dropped decisions before they were read. */
  readonly isIncomplete: boolean
}

/** As much of `/admin/chaos/journal` as is read. */
const journalPage = z.object({
  oldest: z.number().optional(),
  next: z.number(),
  more: z.boolean().optional(),
  entries: z.array(
    z.discriminatedUnion('kind', [
      z.object({
        kind: z.literal('decision'),
        fault: z.string(),
        side: z.string(),
        attempt: z.number(),
        callKey: z.string(),
        decision: z.string(),
        because: z.string().optional(),
        call: z.object({
          server: z.string(),
          tool: z.string().optional(),
          intent: z.string().optional(),
        }),
      }),
      z.object({ kind: z.literal('fate') }),
      z.object({ kind: z.literal('control'), type: z.string(), detail: z.unknown().optional() }),
    ]),
  ),
})

type Entry = z.output<typeof journalPage>['entries'][number]

/** The detail of an entry about an injected fault. */
const injection = z.object({ fault: z.object({ name: z.string() }) })

/** A decision about one attempt, as far as twins are compared by it. */
type Decision = Extract<Entry, { kind: 'decision' }>

/** Most entries that one answer has. */
const PAGE = 1_000

/** Most examples that are kept. */
const MAX_EXAMPLES = 5

/** Decisions about faults, put together by call: twins have the same key. */
export class Decisions {
  readonly #prefix: string
  readonly #alone = new Map<string, { readonly what: string; readonly attempt: number }>()
  readonly #counts = { first: { twice: 0, different: 0 }, later: { twice: 0, different: 0 } }
  readonly #examples: string[] = []
  readonly #injected = new Set<string>()
  #since: number | undefined
  #isIncomplete = false

  /** `prefix` begins the names of the tasks that it is about. */
  constructor(prefix: string) {
    this.#prefix = prefix
  }

  /** Takes the new entries of a journal, which forgets: to be called often. Rejects with an `UnusableInput`. */
  async follow(control: Control): Promise<void> {
    for (let more = true; more;) {
      const query = this.#since === undefined ? 'limit=1' : `since=${this.#since}&limit=${PAGE}`
      const page = await ask(control, { method: 'GET', path: `/admin/chaos/journal?${query}` }, journalPage)
      const { oldest = 0, next, entries } = page
      if (this.#since !== undefined) {
        if (this.#since > 0 && oldest > this.#since) this.#isIncomplete = true
        for (const entry of entries) this.#read(entry)
      }
      more = this.#since !== undefined && page.more === true && next > this.#since
      this.#since = next
    }
  }

  /** Names of the faults that were injected one by one since the first time. */
  get injected(): readonly string[] {
    return [...this.#injected]
  }

  #read(entry: Entry): void {
    if (entry.kind === 'decision') return this.take(entry)
    if (entry.kind !== 'control' || entry.type !== 'injected') return
    const { data } = injection.safeParse(entry.detail)
    if (data !== undefined) this.#injected.add(data.fault.name)
  }

  take({ fault, side, callKey, attempt, decision, because, call }: Decision): void {
    if (call.intent?.startsWith(this.#prefix) !== true) return
    const key = `${fault} ${side} ${attempt} ${callKey}`
    const what = because === undefined ? decision : `${decision} (${because})`
    const twin = this.#alone.get(key)
    if (twin === undefined) return void this.#alone.set(key, { what, attempt })
    this.#alone.delete(key)
    const counts = attempt === 1 ? this.#counts.first : this.#counts.later
    counts.twice++
    if (twin.what === what) return
    counts.different++
    if (attempt === 1 && this.#examples.length < MAX_EXAMPLES)
      this.#examples.push(`${call.intent} ${call.server}/${call.tool}: ${fault} ${twin.what}, then ${what}`)
  }

  report(): DecisionsReport {
    const alone = [...this.#alone.values()]
    const first = alone.filter(({ attempt }) => attempt === 1).length
    return {
      first: { ...this.#counts.first, once: first },
      later: { ...this.#counts.later, once: alone.length - first },
      examples: this.#examples,
      isIncomplete: this.#isIncomplete,
    }
  }
}
