import type { ShownGameDay } from '../../src/commands/break/gameday/view.ts'
import { gameDayResult, type GameDayRecord, type StepRecord } from '../../src/gamedays/record.ts'
import { readGameDay } from '../../src/gateway/gameday-file.ts'
import { guardedInShort } from '../../src/routes/admin-guarded.ts'
import { recordOf, specOf } from '../experiments/guarded/world.ts'

const read = await readGameDay('config/gamedays/first-look.yaml')
if (!read.ok) throw new Error(read.problems.join('\n'))

/** The wall clock of these tests, in milliseconds since the Unix epoch. */
export const NOW = Date.parse('2026-12-01T12:00:00Z')

export const planned = {
  state: 'planned',
  runs: [],
  note: '',
  beganAt: undefined,
  result: undefined,
} as const

/** Returns the result of an experiment. */
export const resultOf = (more: Partial<NonNullable<StepRecord['result']>> = {}) => ({
  state: 'completed' as const,
  verdict: 'passed' as const,
  reasons: [],
  why: 'it held',
  recoveredMs: 46_000,
  rtoMs: 90_000,
  endedAt: NOW,
  ...more,
})

/** A run of the experiment `name` in its first stage. */
export const runOf = (name: string, more: Parameters<typeof recordOf>[1] = {}, needsSignature = false) =>
  guardedInShort(
    { ...recordOf(specOf(), { state: 'running', phase: 'stage', stage: 0, ...more }), name },
    needsSignature,
  )

/** A GameDay of `config/gamedays/first-look.yaml`, as the gateway shows it; by default just begun. */
export function dayOf(more: Partial<ShownGameDay> = {}): ShownGameDay {
  const record: GameDayRecord = {
    format: 1,
    id: 'gd-1-00000000',
    plan: (read as { readonly ok: true } & typeof read).plan,
    isComplete: true,
    version: '0',
    environment: 'development',
    by: 'ann',
    isOfAgent: false,
    state: 'running',
    reason: 'it runs',
    startedAt: NOW - 60_000,
    endedAt: undefined,
    steps: ['process-kill', 'drift'].map((name) => ({ name, ...planned })),
    pauses: [],
    observations: [],
    actions: [],
    events: [],
    ...more,
  }
  return { ...record, result: gameDayResult(record), ...(more.run && { run: more.run }) }
}
