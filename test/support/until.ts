import { setTimeout } from 'node:timers/promises'

const POLL_MS = 5

/**
 * Waits for a condition that depends on other processes; fails with `what` when the condition does not come true. The limit only
 * names what hangs: a busy machine may take long.
 */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  limitMs = 60_000,
): Promise<void> {
  const deadline = performance.now() + limitMs
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`not within ${limitMs} ms: ${what}`)
    await setTimeout(POLL_MS)
  }
}
