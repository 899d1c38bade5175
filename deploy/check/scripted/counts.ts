import { fates, script, type Fate, type Tool } from './script.ts'

interface Ending {
  readonly tool: Tool
  readonly fate: Fate
}

const calls = script.flatMap((task) => task.calls)

/** Every try at a tool, and every call; a call has the fate of its last try. */
export const endings: Readonly<Record<'attempts' | 'calls', readonly Ending[]>> = {
  attempts: calls.flatMap(({ tool, tries }) => tries.map((fate) => ({ tool, fate }))),
  calls: calls.map(({ tool, tries }) => ({ tool, fate: tries.at(-1) ?? 'rejected' })),
}

const blameless: ReadonlySet<Fate> = new Set(['caller_error', 'cancelled'])

/** Rules that count an ending. */
const shares = {
  all: () => true,
  sent: (fate: Fate) => fate !== 'rejected',
  /** Endings that agents feel, and have not caused themselves. */
  felt: (fate: Fate) => !blameless.has(fate),
  eligible: (fate: Fate) => !blameless.has(fate) && fate !== 'rejected',
  returned: (fate: Fate) => fates[fate].returned,
  good: (fate: Fate) => fates[fate].returned && !fates[fate].hurts,
  unchecked: (fate: Fate) => fate === 'unchecked',
} as const

export type Share = keyof typeof shares

/** Returns how many attempts or calls count as `share`, at one tool or at all. */
export function count(of: keyof typeof endings, share: Share, tool?: Tool): number {
  return endings[of].filter((one) => (tool ?? one.tool) === one.tool && shares[share](one.fate)).length
}

export const tools: readonly Tool[] = [...new Set(calls.map(({ tool }) => tool))]

const named = script.filter(({ named }) => named !== 'nowhere')

/** Counts of named tasks, of named tasks with a failure, and of their calls. */
export const tasks = {
  all: named.length,
  hurt: named.filter(({ calls }) => calls.some(({ tries }) => fates[tries.at(-1) ?? 'rejected'].hurts))
    .length,
  calls: named.flatMap((task) => task.calls).length,
}
