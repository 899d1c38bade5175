import { Pool } from 'undici'
import { systemClock } from '../../src/mesh/clock.ts'
import type { Endpoint } from '../middle.ts'
import { Session } from '../session.ts'
import type { Speech } from './load.ts'
import { StreamSession } from './stream-session.ts'

const WITHIN_MS = 30_000
const EVERY_MS = 100

export interface Spoken {
  readonly path: string
  readonly tool: string
  readonly speech: Speech
}

/** Waits until a session can be opened and lists the tool: foreign programs do not report readiness. */
export async function untilServes(spoken: Spoken, endpoint: Endpoint): Promise<Endpoint> {
  const { path, tool, speech } = spoken
  const { signal } = new AbortController()
  const giveUpAt = systemClock.now() + WITHIN_MS
  for (;;) {
    const pool = new Pool(endpoint.origin, { headersTimeout: 5_000, bodyTimeout: 5_000 })
    try {
      const session =
        speech === 'http+sse'
          ? await StreamSession.open(pool, path, tool)
          : await Session.open(pool, path, tool, speech)
      await session.close()
      return endpoint
    } catch (error) {
      if (systemClock.now() > giveUpAt)
        throw new Error(`not ready after ${WITHIN_MS / 1_000} s: ${String(error)}`)
    } finally {
      await pool.destroy()
    }
    await systemClock.sleep(EVERY_MS, signal)
  }
}
