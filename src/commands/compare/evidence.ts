import { z } from 'zod'
import { printable } from '../../telemetry/printable.ts'
import { UnusableInput } from '../shared/arguments.ts'
import type { Control, Request } from '../shared/control.ts'

/**
 * Asks the gateway over its control port. Rejects with an `UnusableInput`, also for an answer that does not match the
 * schema `answer`: another program may listen at the port.
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
    `the control port does not answer like a gateway: ${request.method} ${request.path}${where}`,
  )
}

/** Schema for an answer whose fields are not read. */
export const anything = z.unknown()

/** The gateway's counts for a task in an arm. */
export interface Sampled {
  readonly calls: number
  readonly attempts: number
}

/** Returns counts by arm, then by task, from the CSV of an experiment's units. */
export function samplesIn(csv: string): ReadonlyMap<string, ReadonlyMap<string, Sampled>> {
  const [head = [], ...rows] = rowsOf(csv)
  const [unit, arm, calls, attempts] = ['unit', 'arm', 'calls', 'attempts'].map((name) => head.indexOf(name))
  const byArm = new Map<string, Map<string, Sampled>>()
  for (const row of rows) {
    const [name = '', key = ''] = [row[arm!], row[unit!]]
    // The key of a unit is the caller and the tenant, followed by `/` and the name of the task.
    const task = key.slice(key.indexOf('/') + 1)
    const ofArm = byArm.get(name) ?? new Map<string, Sampled>()
    byArm.set(name, ofArm)
    ofArm.set(task, { calls: Number(row[calls!]), attempts: Number(row[attempts!]) })
  }
  return byArm
}

/** Returns the rows of a CSV text (RFC 4180), each as a list of fields. */
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

/** Counts of compared decisions: each decision is about the same attempt in both arms. */
export interface DecisionCounts {
  readonly twice: number
  /** Number of decisions with different results in the two arms. */
  readonly different: number
  /** Decisions in one arm only: the other arm did not make this attempt. */
  readonly once: number
}

export interface DecisionsReport {
  /** Decisions about first attempts. Both arms make the same first attempts, so the decisions must be equal. */
  readonly first: DecisionCounts
  /** Decisions about further attempts, such as retries by policies. */
  readonly later: DecisionCounts
  /** A few calls with different decisions on their first attempts. */
  readonly examples: readonly string[]
  /** True if the journal dropped decisions before the command read them. */
  readonly isIncomplete: boolean
}

/** The fields of `/admin/chaos/journal` that this command reads. */
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

const injection = z.object({ fault: z.object({ name: z.string() }) })

/** A decision about an attempt: the fields compared between twins. */
type Decision = Extract<Entry, { kind: 'decision' }>

/** Maximum number of entries per answer. */
const PAGE = 1_000

const MAX_EXAMPLES = 5

/** Decisions about faults, grouped by call: twins have the same key. */
export class Decisions {
  readonly #prefix: string
  readonly #alone = new Map<string, { readonly what: string; readonly attempt: number }>()
  readonly #counts = { first: { twice: 0, different: 0 }, later: { twice: 0, different: 0 } }
  readonly #examples: string[] = []
  readonly #injected = new Set<string>()
  #since: number | undefined
  #isIncomplete = false

  /** `prefix`: beginning of the relevant tasks' names. */
  constructor(prefix: string) {
    this.#prefix = prefix
  }

  /**
   * Reads the journal's new entries. Call often, because the journal drops old entries. Rejects with an
   * `UnusableInput`.
   */
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

  /** Names of faults injected individually since the first call of `follow`. */
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
