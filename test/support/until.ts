import { setTimeout } from 'node:timers/promises'

/** Pause between two looks, in milliseconds: the first pause, and the longest. */
const SHORTEST_PAUSE_MS = 5
const LONGEST_PAUSE_MS = 25

/** A pause is this share of the time waited so far: looks cost CPU in all processes, and the wait grows little. */
const PART = 1 / 20

/**
 * Waits for a condition that depends on other processes. Fails with `what` if the condition stays false until the
 * limit. The limit only names the hanging wait: a busy machine may take long.
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
