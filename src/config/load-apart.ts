import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { inTurns } from '../mesh/clock.ts'
import type { Env } from './files/interpolate.ts'
import { configHash, noteHash } from './hash.ts'
import { type Loaded, readConfig, type ReadConfig, remembered } from './load.ts'
import type { Config, ServerConfig } from './schema/schema.ts'

/**
 * From so many servers on a config is read in a thread of its own: each takes half a millisecond and more, for which all calls would
 * wait. For fewer of them it is the thread that costs more.
 */
const MANY = 50

/** How many entries are hashed in one turn: together they take about a millisecond. */
const HASHES_A_TURN = 32

/** What is to be read, and what is known of it. */
export interface Reading {
  readonly path: string
  readonly env: Env
  /** Hashes of the entries of servers as they were before, by name. */
  readonly known: ReadonlyMap<string, string>
}

/** What was read. A message between threads is unpacked without a break, so it does not repeat what is known. */
interface News extends ReadConfig {
  /** Names of all servers, in the order of the config, which has the entries only of those that are new or say something else. */
  readonly names: readonly string[]
}

/** Reads a config again as `loadConfig` does. Entries of servers that say what they said `before` are the same objects. */
export async function loadApart(path: string, env: Env, before: Config): Promise<Loaded> {
  const reading: Reading = { path, env, known: await hashesOf(before) }
  if (reading.known.size < MANY) return completed(await readNews(reading), before)
  // No memory for a thread, or none to be had: late is better than never.
  return completed(await readInThread(reading).catch(() => readNews(reading)), before)
}

async function readInThread({ path, env, known }: Reading): Promise<News> {
  const workerData: Reading = { path, env: { ...env }, known }
  const worker = new Worker(new URL('./load-worker.js', import.meta.url), { workerData })
  try {
    const [news] = (await once(worker, 'message')) as [News]
    return news
  } finally {
    await worker.terminate()
  }
}

/** In whichever thread. */
export async function readNews({ path, env, known }: Reading): Promise<News> {
  const { loaded, interpolated } = await readConfig(path, env)
  if (!loaded.ok) return { loaded, interpolated, names: [] }
  const entries = Object.entries(loaded.config.mcpServers)
  const news = entries.filter(([name, entry]) => known.get(name) !== configHash(entry))
  const config = { ...loaded.config, mcpServers: Object.fromEntries(news) }
  return { loaded: { ...loaded, config }, interpolated, names: entries.map(([name]) => name) }
}

/** By the name of the server. */
async function hashesOf({ mcpServers }: Config): Promise<Map<string, string>> {
  const hashes = new Map<string, string>()
  const hash = ([name, entry]: [string, ServerConfig]) => {
    const text = configHash(entry)
    // It is asked for again at the next reload.
    noteHash(entry, text)
    hashes.set(name, text)
  }
  await inTurns(Object.entries(mcpServers), hash, HASHES_A_TURN)
  return hashes
}

/** With the entries that are known. */
function completed({ names, ...read }: News, { mcpServers: known }: Config): Loaded {
  const loaded = remembered(read)
  if (!loaded.ok) return loaded
  const all = { ...known, ...loaded.config.mcpServers }
  const mcpServers = Object.fromEntries(names.map((name) => [name, all[name]!]))
  return { ...loaded, config: { ...loaded.config, mcpServers } }
}
