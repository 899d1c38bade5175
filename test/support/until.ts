import { setTimeout } from 'node:timers/promises'

/** Between two looks, in milliseconds: at first, and at most. */
const SHORTEST_PAUSE_MS = 5
const LONGEST_PAUSE_MS = 25

/** A pause is this part of what was waited for already: a look costs all processes that it asks, and a wait gets hardly longer by it. */
const PART = 1 / 20

/**
 * Waits for a condition that depends on other processes; fails with `what` when the condition does not come true. The limit only
 * names what hangs: a busy machine may take long.
 */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  limitMs = 60_000,
): Promise<void> {
  const began = performance.now()
  while (!(await condition())) {
    const waited = performance.now() - began
    if (waited > limitMs) throw new Error(`not within ${limitMs} ms: ${what}`)
    await setTimeout(Math.min(LONGEST_PAUSE_MS, Math.max(SHORTEST_PAUSE_MS, waited * PART)))
  }
}
