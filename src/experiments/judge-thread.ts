import { type Judged, judgeUnits, type KnownUnits } from './judge.ts'
import type { Experiment } from './schema.ts'
import { askThread } from './unit-thread.ts'

/** The input of the thread of judgements besides the units. */
export interface JudgeFacts {
  readonly experiment: Experiment
  readonly known: KnownUnits
}

/**
 * Judges an ended run in a separate thread: quantiles of tens of thousands of units take a second, which must not delay
 * calls. Same result as in this thread, which judges if the other thread fails.
 */
export async function judgeApart(experiment: Experiment, known: KnownUnits): Promise<Judged> {
  const facts: JudgeFacts = { experiment, known: { ...known, all: [] } }
  try {
    return await askThread<Judged>(new URL('./judge-worker.js', import.meta.url), facts, known.all)
  } catch {
    return judgeUnits(experiment, known, { isOver: true })
  }
}
