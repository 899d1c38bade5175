import { z } from 'zod'
import type { RecordedCall } from '../telemetry/recording/format.ts'

const tools = z
  .array(z.string().min(1).max(513))
  .max(1_000)
  .describe('Tools, by their names at their servers, or as `server/tool`.')

/** The schema of a contract: the promises of a kind of task. */
export const contract = z.strictObject({
  mustRun: tools.optional().describe('Tools without which no task of the kind succeeds.'),
  repeatable: tools.default([]).describe('Tools that agents call again with the same arguments on purpose.'),
  polls: tools.default([]).describe('Tools that agents ask again and again, until the answer changes.'),
})

export type Contract = z.output<typeof contract>

/** The contract of a kind of task. */
export interface KindContract {
  /** All tools that a task of the kind may call; undefined: any tools. */
  readonly tools: readonly string[] | undefined
  /** Undefined when nobody wrote a contract for the kind. */
  readonly contract: Contract | undefined
}

/** Whether a name of a contract means the call's tool. */
export const names = (name: string, { server, tool }: Pick<RecordedCall, 'server' | 'tool'>): boolean =>
  name === tool || name === `${server}/${tool}` || name === `${server}__${tool}`

/** Whether one of the names means the call's tool. */
export const isAmong = (list: readonly string[], call: Pick<RecordedCall, 'server' | 'tool'>): boolean =>
  list.some((name) => names(name, call))

/**
 * Returns the contract of the task that made these calls; undefined without a contract. A recording does not tell the
 * kind of a task. If several kinds could have made the calls, only their common promises count.
 */
export function contractOf(
  calls: readonly Pick<RecordedCall, 'server' | 'tool'>[],
  kinds: readonly KindContract[],
): Contract | undefined {
  const possible = kinds.filter(
    ({ tools }) => tools === undefined || calls.every((call) => isAmong(tools, call)),
  )
  const all = possible.flatMap(({ contract }) => contract ?? [])
  const [first, ...others] = all
  if (first === undefined || all.length < possible.length) return undefined
  const inAll = (key: 'repeatable' | 'polls') =>
    first[key].filter((name) => others.every((other) => other[key].includes(name)))
  const isSame = others.every(({ mustRun }) => areEqual(mustRun, first.mustRun))
  return {
    mustRun: isSame ? first.mustRun : undefined,
    repeatable: inAll('repeatable'),
    polls: inAll('polls'),
  }
}

function areEqual(one: readonly string[] | undefined, other: readonly string[] | undefined): boolean {
  if (one === undefined || other === undefined) return one === other
  return one.length === other.length && one.every((name) => other.includes(name))
}
