import { setTimeout } from 'node:timers/promises'

const POLL_MS = 5

/** Waits for a condition that depends on other processes; fails with `what` if it does not come true in time. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  limitMs = 20_000,
): Promise<void> {
  const deadline = performance.now() + limitMs
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`not within ${limitMs} ms: ${what}`)
    await setTimeout(POLL_MS)
  }
}
