import { fates, script, type Fate, type Tool } from './script.ts'

/** A try or a call, and what became of it. */
interface Ending {
  readonly tool: Tool
  readonly fate: Fate
}

const calls = script.flatMap((task) => task.calls)

/** Every try at a tool, and every call, whose fate is that of its last try. */
export const endings: Readonly<Record<'attempts' | 'calls', readonly Ending[]>> = {
  attempts: calls.flatMap(({ tool, tries }) => tries.map((fate) => ({ tool, fate }))),
  calls: calls.map(({ tool, tries }) => ({ tool, fate: tries.at(-1) ?? 'rejected' })),
}

const blameless: ReadonlySet<Fate> = new Set(['caller_error', 'cancelled'])

/** What counts as what. */
const shares = {
  all: () => true,
  sent: (fate: Fate) => fate !== 'rejected',
  /** What agents feel, and did not bring about themselves. */
  felt: (fate: Fate) => !blameless.has(fate),
  eligible: (fate: Fate) => !blameless.has(fate) && fate !== 'rejected',
  returned: (fate: Fate) => fates[fate].returned,
  good: (fate: Fate) => fates[fate].returned && !fates[fate].hurts,
  unchecked: (fate: Fate) => fate === 'unchecked',
} as const

export type Share = keyof typeof shares

/** How many attempts or calls count as `share`: those at one tool, or all. */
export function count(of: keyof typeof endings, share: Share, tool?: Tool): number {
  return endings[of].filter((one) => (tool ?? one.tool) === one.tool && shares[share](one.fate)).length
}

/** Tools of the script. */
export const tools: readonly Tool[] = [...new Set(calls.map(({ tool }) => tool))]

const named = script.filter(({ named }) => named !== 'nowhere')

/** Tasks that have a name, those of them that met a failure, and how many calls they have together. */
export const tasks = {
  all: named.length,
  hurt: named.filter(({ calls }) => calls.some(({ tries }) => fates[tries.at(-1) ?? 'rejected'].hurts))
    .length,
  calls: named.flatMap((task) => task.calls).length,
}
