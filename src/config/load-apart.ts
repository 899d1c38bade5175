import { Worker } from 'node:worker_threads'
import { type Cancel, type Clock, inTurns, type Millis, systemClock } from '../mesh/clock.ts'
import type { Env } from './files/interpolate.ts'
import type { TextFile } from './files/read-text.ts'
import { type Allowance, TooMuch } from './files/read-values.ts'
import { configHash, noteHash } from './hash.ts'
import { type Loaded, readConfig, type ReadConfig, remembered } from './load.ts'
import type { Config, ServerConfig } from './schema/schema.ts'

/**
 * Maximum size of a config that is read in this thread. Reading it takes some tens of milliseconds, during which all
 * calls wait. A larger config is read in a worker thread, which takes half a second to start.
 */
const LITTLE: Allowance = { text: 8 * 1024, values: 2_000 }

/** Memory limit of the worker thread, in megabytes: a config of 1 MiB with 6,000 servers takes about 170. */
const MAX_HEAP_MB = 256

/** Longest reading, in milliseconds. On two busy cores a config of 1 MiB with 6,000 servers takes half a minute. */
const LONGEST_MS: Millis = 180_000

/** How long a pipe may take to be written, in milliseconds. */
const PIPE_MS: Millis = 5_000

/** Number of entries hashed per turn of the event loop; they take about a millisecond. */
const HASHES_A_TURN = 32

/** The config to read, and the facts already known about it. */
export interface Reading {
  readonly path: string
  readonly env: Env
  /** Earlier hashes of servers' entries, by name. */
  readonly known: ReadonlyMap<string, string>
  /** The files of the config already read, by path. */
  readonly texts: Map<string, TextFile>
}

/**
 * The result of a reading. It has no unchanged entries, because unpacking a large message from a thread would block all
 * calls.
 */
interface News extends ReadConfig {
  /** Names of all servers, in the config's order. The config in this result has only the new or changed entries. */
  readonly names: readonly string[]
}

/**
 * Reads a config again like `loadConfig`. Unchanged servers' entries are the same objects as `before`. Rejects when
 * reading takes too much time or memory.
 */
export async function loadApart(
  path: string,
  env: Env,
  before: Config,
  clock: Clock = systemClock,
): Promise<Loaded> {
  const reading: Reading = { path, env, known: await hashesOf(before), texts: new Map() }
  let cancel: Cancel = () => undefined
  const late = new Promise<never>((_, reject) => {
    const why = `the config could not be read within ${LONGEST_MS / 1000} s`
    cancel = clock.after(LONGEST_MS, () => reject(new Error(why)))
  })
  try {
    const here = await Promise.race([readLittle(reading), late])
    return completed(here ?? (await readInThread(reading, late)), before)
  } finally {
    cancel()
  }
}

/** Reads the config in this thread. Resolves to undefined when the config is larger than `LITTLE`. */
async function readLittle(reading: Reading): Promise<News | undefined> {
  try {
    return await readNews(reading, { ...LITTLE })
  } catch (error) {
    if (error instanceof TooMuch) return undefined
    throw error
  }
}

async function readInThread(reading: Reading, late: Promise<never>): Promise<News> {
  const workerData: Reading = { ...reading, env: { ...reading.env } }
  let worker: Worker
  try {
    worker = new Worker(new URL('./load-worker.js', import.meta.url), {
      workerData,
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
    })
  } catch {
    // The thread cannot be started, so the config is read in this thread, although calls wait meanwhile.
    return Promise.race([readNews(reading), late])
  }
  try {
    return await Promise.race([answerOf(worker), late])
  } finally {
    // Not awaited, because the thread may still wait for files that it reads.
    void worker.terminate()
  }
}

/**
 * Resolves to the answer of the thread. Rejects when the thread ends without an answer; a second attempt in this thread
 * could exhaust its memory too.
 */
function answerOf(worker: Worker): Promise<News> {
  return new Promise((resolve, reject) => {
    const failed = ({ code, message }: NodeJS.ErrnoException) => {
      const isFull = code === 'ERR_WORKER_OUT_OF_MEMORY'
      const why = isFull ? `it takes more than ${MAX_HEAP_MB} MB of memory to read` : message
      reject(new Error(`the config could not be read: ${why}`))
    }
    worker.once('message', resolve)
    worker.once('messageerror', failed)
    worker.once('error', failed)
    worker.once('exit', () => failed(new Error('the thread that reads it has ended')))
  })
}

/**
 * Reads a config, in any thread. Resolves to its new and changed entries. Rejects with `TooMuch` beyond the allowance.
 */
export async function readNews({ path, env, known, texts }: Reading, allowance?: Allowance): Promise<News> {
  const { loaded, interpolated } = await readConfig(path, env, { allowance, patience: PIPE_MS, texts })
  if (!loaded.ok) return { loaded, interpolated, names: [] }
  const entries = Object.entries(loaded.config.mcpServers)
  const news = entries.filter(([name, entry]) => known.get(name) !== configHash(entry))
  const config = { ...loaded.config, mcpServers: Object.fromEntries(news) }
  return { loaded: { ...loaded, config }, interpolated, names: entries.map(([name]) => name) }
}

async function hashesOf({ mcpServers }: Config): Promise<Map<string, string>> {
  const hashes = new Map<string, string>()
  const hash = ([name, entry]: [string, ServerConfig]) => {
    const text = configHash(entry)
    // Caches the hash for the next reload.
    noteHash(entry, text)
    hashes.set(name, text)
  }
  await inTurns(Object.entries(mcpServers), hash, HASHES_A_TURN)
  return hashes
}

function completed({ names, ...read }: News, { mcpServers: known }: Config): Loaded {
  const loaded = remembered(read)
  if (!loaded.ok) return loaded
  const all = { ...known, ...loaded.config.mcpServers }
  const mcpServers = Object.fromEntries(names.map((name) => [name, all[name]!]))
  return { ...loaded, config: { ...loaded.config, mcpServers } }
}
