import type { Clock } from '../../src/mesh/clock.ts'
import { type Generation, Live } from '../../src/mesh/live.ts'

/** Returns a live generation with `first` in force. */
export function liveWith<G extends Generation>(
  first: G,
  clock: Clock,
  onOverdue?: (calls: number) => void,
): Live<G> {
  const live = new Live<G>(clock, onOverdue)
  live.swap(first)
  return live
}
