import { type Judged, judgeUnits, type KnownUnits } from './judge.ts'
import type { Experiment } from './schema.ts'
import { askThread } from './unit-thread.ts'

export interface JudgeFacts {
  readonly experiment: Experiment
  readonly known: KnownUnits
}

/**
 * Judges an ended run in a separate thread: quantiles of tens of thousands of units take a second of CPU, and calls
 * must not wait. If the thread fails, this thread judges, with the same result.
 */
export async function judgeApart(experiment: Experiment, known: KnownUnits): Promise<Judged> {
  const facts: JudgeFacts = { experiment, known: { ...known, all: [] } }
  try {
    return await askThread<Judged>(new URL('./judge-worker.js', import.meta.url), facts, known.all)
  } catch {
    return judgeUnits(experiment, known, { isOver: true })
  }
}
