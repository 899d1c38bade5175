import { setTimeout as wait } from 'node:timers/promises'
import { ClassicLevel } from 'classic-level'
import type { Answer, Asked, Entry } from './records-level.ts'

// A program of its own, which holds the LevelDB of a gateway: what it is asked for it answers in turn, until the gateway ends.

/** How long a lock is waited for, in milliseconds: the process of a gateway that was killed may still write. */
const LOCKED_MS = 3_000
const LOOK_MS = 100

/** Most entries, and about as many bytes of them, that are sent at once. */
const MOST_ENTRIES = 1_000
const MOST_BYTES = 1024 ** 2

const [folder = ''] = process.argv.slice(2)
const level = new ClassicLevel(folder)
const iterate = () => level.iterator({ highWaterMarkBytes: MOST_BYTES })
let iterator: ReturnType<typeof iterate> | undefined
let answering = Promise.resolve()

// The gateway still needs this process for its last writes when a signal to all of its processes ends the gateway.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined)

process.on('message', (asked: Asked) => {
  answering = answering
    .then(() => answerTo(asked))
    .catch((error: unknown): Answer => ({ failure: causeOf(error) }))
    .then((answer) => void (process.connected && process.send?.(answer)))
})

// Nothing holds the process any more then.
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

/** The entries that follow; none at their end, after which they begin anew. */
async function nextEntries(): Promise<readonly Entry[]> {
  iterator ??= iterate()
  const entries = await iterator.nextv(MOST_ENTRIES)
  if (entries.length > 0) return entries
  await iterator.close()
  iterator = undefined
  return entries
}

/** Why it went wrong, as LevelDB says: code and words of its own, which hold no record. */
function causeOf(error: unknown): { code: string | undefined; message: string } {
  const { code, message, cause } = error as NodeJS.ErrnoException & { cause?: unknown }
  return cause instanceof Error ? causeOf(cause) : { code, message }
}
