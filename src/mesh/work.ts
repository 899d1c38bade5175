import type { Millis } from './clock.ts'

/**
 * Work that can block the event loop by its size, even if well written. `schema`: compiles a tool's schema. `catalog`:
 * reads a server's lists. `request`, `reply`: read large messages. `fan_out`: passes one message to many receivers.
 * `reload`: puts a config into force. `metrics`: collects metrics. `other`: everything else, also in the runtime.
 */
export const works = [
  'schema',
  'catalog',
  'request',
  'reply',
  'fan_out',
  'reload',
  'metrics',
  'other',
] as const

export type Work = (typeof works)[number]

/** Length from which reading a text counts as work, in characters: the read takes a fraction of a millisecond. */
export const LARGE_TEXT = 64 * 1024

/** Gets the duration of each piece of work. */
export interface WorkWatch {
  now(): Millis
  worked(work: Work, ms: Millis): void
}

/** The only watcher, because a process has a single event loop; undefined when nobody watches. */
let watch: WorkWatch | undefined

/** Reports all work to `watching` from now on; the returned function ends the reports. */
export function watchWork(watching: WorkWatch): () => void {
  watch = watching
  return () => {
    if (watch === watching) watch = undefined
  }
}

/** Time taken so far by nested work inside the running work, in milliseconds. */
let within: Millis = 0

/** Runs long synchronous work and reports its duration. Nested work counts only under its own name. */
export function during<Result>(work: Work, task: () => Result): Result {
  const watching = watch
  if (watching === undefined) return task()
  const since = watching.now()
  const before = within
  within = 0
  try {
    return task()
  } finally {
    const ms = watching.now() - since
    watching.worked(work, ms - within)
    within = before + ms
  }
}
