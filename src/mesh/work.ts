import type { Millis } from './clock.ts'

/**
 * Work that can hold up the event loop by its size, however well it is written: `schema` compiles a tool's schema, `catalog`
 * reads the lists of a server, `request` and `reply` read large messages, `fan_out` passes one message on to many, `reload`
 * puts a config into force, `metrics` collects them. `other` is everything else, the runtime's own work included.
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

/** From which length on reading a text counts as work, in characters: it takes a fraction of a millisecond then. */
export const LARGE_TEXT = 64 * 1024

/** Is told how long each piece of work took. */
export interface WorkWatch {
  now(): Millis
  worked(work: Work, ms: Millis): void
}

/** One watcher per process, because a process has one event loop; undefined when nobody watches. */
let watch: WorkWatch | undefined

/** Has `watching` told of all work from now on; returns how to end that. */
export function watchWork(watching: WorkWatch): () => void {
  watch = watching
  return () => {
    if (watch === watching) watch = undefined
  }
}

/** How long the work within that which runs has taken so far, in milliseconds. */
let within: Millis = 0

/** Does synchronous work that may take long, under its name; what runs within it under a name of its own counts there alone. */
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
