import type { Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'

/** How a pause ended. */
export type Paused = 'over' | 'released' | 'aborted'

/** Longest time that a timer can hold. */
const LONGEST_MS = 2 ** 31 - 1

/** Waits until the time is over, or one of the two signals aborts; leaves neither timer nor listener behind. */
export function pause(clock: Clock, ms: Millis, released: Signal, aborted: Signal): Promise<Paused> {
  if (released.aborted) return Promise.resolve('released')
  if (aborted.aborted) return Promise.resolve('aborted')
  return new Promise((resolve) => {
    const end = (how: Paused) => {
      cancel()
      released.removeEventListener('abort', onRelease)
      aborted.removeEventListener('abort', onAbort)
      resolve(how)
    }
    const onRelease = () => end('released')
    const onAbort = () => end('aborted')
    const cancel = clock.after(Math.min(ms, LONGEST_MS), () => end('over'))
    released.addEventListener('abort', onRelease)
    aborted.addEventListener('abort', onAbort)
  })
}
