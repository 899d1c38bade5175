import type { KeyedRandom } from '../../mesh/keyed-random.ts'
import { distinctiveIn } from '../../protocol/distinctive.ts'
import { MAX_CANARIES } from './format.ts'

/** Most tasks whose values are followed; the task without a call for the longest time is forgotten. */
const MAX_TASKS = 1_000

/** Most known values of a task. */
const MAX_KNOWN = 1_000

/** The values that a task's agent has sent and got, as hashes. */
interface Seen {
  /** Values of arguments, and of replies that no fault harmed. */
  readonly known: Set<number>
  /** Values that only a fault has put into a reply, with their digests. */
  readonly canaries: Map<number, string>
  /** Whether `known` has all values. */
  isWhole: boolean
}

/** The canaries in a call's arguments. */
export interface InArguments {
  readonly uses: readonly string[]
  /** Whether some values could not be compared. */
  readonly isUnwatched: boolean
}

/** A reply, and the work of faults on the reply. */
export interface HarmedReply {
  /** Undefined without an answer, and for an answer too large to compare. */
  readonly content: unknown
  readonly isTooLarge: boolean
  /** Whether a fault changed the reply. */
  readonly isHarmed: boolean
  /** The values that escaped faults put into the reply, as far as the faults can tell. */
  readonly values: readonly string[]
}

/** The canaries in a reply. */
export interface InReply {
  readonly canaries: readonly string[]
  /** Number of further values, beyond `MAX_CANARIES`. */
  readonly more: number
  /** Canaries in a reply without a fault. */
  readonly clean: readonly string[]
  readonly isUnwatched: boolean
}

interface TaskValuesParts {
  /** Hashes values, so that no value stays in memory. */
  readonly hash: KeyedRandom
  readonly digest: (kind: string, value: string) => string
}

/**
 * Follows the values that faults put into replies, to find the values in later calls of the same task. A value that the
 * agent sent or got before, in any other way, is no canary.
 */
export class TaskValues {
  readonly #parts: TaskValuesParts
  /** The task without a call for the longest time comes first. */
  readonly #tasks = new Map<string, Seen>()

  constructor(parts: TaskValuesParts) {
    this.#parts = parts
  }

  /**
   * Begins a call of a task, and returns the canaries in its arguments. `args` is undefined for arguments too large to
   * compare. `isFirst`: whether the task had no call before.
   */
  begin(task: string, isFirst: boolean, args: unknown): InArguments {
    const before = isFirst ? undefined : this.#tasks.get(task)
    // A task with calls before may have canaries that are forgotten, or older than the recording.
    const seen = before ?? { known: new Set<number>(), canaries: new Map<number, string>(), isWhole: isFirst }
    this.#tasks.delete(task)
    const [oldest] = this.#tasks.keys()
    if (this.#tasks.size >= MAX_TASKS && oldest !== undefined) this.#tasks.delete(oldest)
    this.#tasks.set(task, seen)
    const { found, isWhole } = this.#learn(seen, args)
    const isForgotten = before === undefined && !isFirst
    return { uses: found, isUnwatched: isForgotten || (!isWhole && seen.canaries.size > 0) }
  }

  /** Ends a call of a task, and returns the canaries in its reply. */
  end(task: string, { content, isTooLarge, isHarmed, values }: HarmedReply): InReply {
    const seen = this.#tasks.get(task)
    const nothing = { canaries: [], more: 0, clean: [], isUnwatched: false }
    if (seen === undefined) return nothing
    if (isHarmed) return { ...nothing, ...this.#plant(seen, content, values) }
    if (content === undefined && !isTooLarge) return nothing
    const { found, isWhole } = this.#learn(seen, content)
    return { ...nothing, clean: found, isUnwatched: !isWhole && seen.canaries.size > 0 }
  }

  /** Adds values to the known values; returns the digests of canaries among the values. */
  #learn(seen: Seen, value: unknown): { readonly found: readonly string[]; readonly isWhole: boolean } {
    const { values, isWhole } = value === undefined ? { values: [], isWhole: false } : distinctiveIn(value)
    const found = new Set<string>()
    for (const one of values) {
      const hash = this.#hash(one)
      const canary = seen.canaries.get(hash)
      if (canary !== undefined) found.add(canary)
      else if (seen.known.size < MAX_KNOWN) seen.known.add(hash)
      else seen.isWhole = false
    }
    if (!isWhole) seen.isWhole = false
    return { found: [...found], isWhole }
  }

  /** Only a value that the reply still holds, and the agent had from nowhere else, is a canary. */
  #plant(seen: Seen, content: unknown, values: readonly string[]): Pick<InReply, 'canaries' | 'more'> {
    if (!seen.isWhole || content === undefined) return { canaries: [], more: 0 }
    const told = new Set(distinctiveIn(content).values)
    const planted = new Set<string>()
    let more = 0
    for (const value of values) {
      const hash = this.#hash(value)
      if (!told.has(value) || seen.known.has(hash)) continue
      const known = seen.canaries.get(hash)
      if (known === undefined && seen.canaries.size >= MAX_CANARIES) more++
      else {
        const digest = known ?? this.#parts.digest('value', value)
        seen.canaries.set(hash, digest)
        planted.add(digest)
      }
    }
    return { canaries: [...planted], more }
  }

  #hash(value: string): number {
    return this.#parts.hash(value, 'value')
  }
}
