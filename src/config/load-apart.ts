import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import type { Env } from './files/interpolate.ts'
import { type Loaded, loadConfig, type ReadConfig, remembered } from './load.ts'

/**
 * From so many servers on a config is read in a thread of its own: each takes half a millisecond and more, for which all calls would
 * wait. For fewer of them it is the thread that costs more.
 */
const MANY = 50

/** What the thread is told. */
export interface Reading {
  readonly path: string
  readonly env: Env
}

/** Reads a config as `loadConfig` does. `servers`: how many it had when it was read last. */
export async function loadApart(path: string, env: Env, servers: number): Promise<Loaded> {
  if (servers < MANY) return loadConfig(path, env)
  const url = new URL('./load-worker.js', import.meta.url)
  let worker: Worker | undefined
  try {
    worker = new Worker(url, { workerData: { path, env: { ...env } } satisfies Reading })
    const [read] = (await once(worker, 'message')) as [ReadConfig]
    return remembered(read)
  } catch {
    // No memory for a thread, or none to be had: late is better than never.
    return loadConfig(path, env)
  } finally {
    await worker?.terminate()
  }
}
