import { setTimeout as wait } from 'node:timers/promises'
import { ClassicLevel } from 'classic-level'
import type { Answer, Asked, Entry } from './records-level.ts'

// The child program with the gateway's LevelDB. Answers requests in order until the gateway ends.

/** Longest wait for the lock, in milliseconds: the child of a killed gateway may still be writing. */
const LOCKED_MS = 3_000
const LOOK_MS = 100

/** Most entries per answer, and their approximate bytes. */
const MOST_ENTRIES = 1_000
const MOST_BYTES = 1024 ** 2

const [folder = ''] = process.argv.slice(2)
const level = new ClassicLevel(folder)
const iterate = () => level.iterator({ highWaterMarkBytes: MOST_BYTES })
let iterator: ReturnType<typeof iterate> | undefined
let answering = Promise.resolve()

// Ignores signals to the process group, because the gateway still needs this process for its last writes.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined)

process.on('message', (asked: Asked) => {
  answering = answering
    .then(() => answerTo(asked))
    .catch((error: unknown): Answer => ({ failure: causeOf(error) }))
    .then((answer) => void (process.connected && process.send?.(answer)))
})

// Closes LevelDB when the gateway has ended; then this process exits.
process.once('disconnect', () => {
  void answering.then(() => level.close()).catch(() => undefined)
})

async function answerTo(asked: Asked): Promise<Answer> {
  switch (asked.what) {
    case 'open':
      await open()
      return {}
    case 'repair':
      await ClassicLevel.repair(folder)
      return {}
    case 'batch':
      await level.batch([...asked.changes])
      return {}
    case 'next':
      return { entries: await nextEntries() }
    case 'close':
      await level.close()
      return {}
  }
}

async function open(): Promise<void> {
  for (let waited = 0; ; waited += LOOK_MS) {
    try {
      return await level.open()
    } catch (error) {
      if (causeOf(error).code !== 'LEVEL_LOCKED' || waited >= LOCKED_MS || !process.connected) throw error
    }
    await wait(LOOK_MS)
  }
}

/**
 * Resolves to the next entries; empty after the last entry. The following request starts again from the first entry.
 */
async function nextEntries(): Promise<readonly Entry[]> {
  iterator ??= iterate()
  const entries = await iterator.nextv(MOST_ENTRIES)
  if (entries.length > 0) return entries
  await iterator.close()
  iterator = undefined
  return entries
}

/** Returns LevelDB's own code and message, free of record content. */
function causeOf(error: unknown): { code: string | undefined; message: string } {
  const { code, message, cause } = error as NodeJS.ErrnoException & { cause?: unknown }
  return cause instanceof Error ? causeOf(cause) : { code, message }
}
