import type { FastifyInstance } from 'fastify'
import { type HandedIn, type HandIn, handIn, MOST_BYTES } from '../evidence/hand-in.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { malformed, read } from './answers.ts'

export interface AdminRunsParts {
  readonly clock: Pick<Clock, 'now'>
  /** Undefined when the gateway keeps no index of runs. */
  readonly index: { handIn(document: HandIn, by: string): Promise<HandedIn> } | undefined
}

/** Most documents that clients hand in within `WINDOW_MS`, in milliseconds. */
const MOST_A_WINDOW = 60
const WINDOW_MS: Millis = 60_000

/** A client proves that it has the control token, and nothing else. */
const BY = 'control token'

const statuses = { implausible: 400, taken: 409, full: 507, unwritten: 503 } as const

/**
 * Registers `POST /admin/runs`, which takes the summary of a run that a client measured. Answers 201 with the verdict,
 * or 200 for a document that the index has already.
 */
export function registerAdminRuns(app: FastifyInstance, { clock, index }: AdminRunsParts): void {
  /** Times of the documents in the window, the oldest first. */
  const times: Millis[] = []

  app.post('/admin/runs', async ({ body }, reply) => {
    if (index === undefined)
      return reply.code(503).send({ error: 'the gateway keeps no index of runs: it needs gateway.stateDir' })
    const now = clock.now()
    while (times.length > 0 && now - times[0]! >= WINDOW_MS) times.shift()
    if (times.length >= MOST_A_WINDOW) {
      const seconds = Math.ceil((times[0]! + WINDOW_MS - now) / 1_000)
      return reply
        .code(429)
        .header('retry-after', String(seconds))
        .send({ error: `at most ${MOST_A_WINDOW} runs a minute: try again in ${seconds} s` })
    }
    times.push(now)
    // The parser of the control plane has bounded the body, so this text is bounded as well.
    const bytes = Buffer.byteLength(JSON.stringify(body ?? {}))
    if (bytes > MOST_BYTES)
      return reply.code(413).send({ error: `the run has ${bytes} bytes: at most ${MOST_BYTES} are taken` })
    const wanted = read(handIn, body ?? {}, 'the run')
    if (!wanted.ok) return malformed(reply, wanted)
    const taken = await index.handIn(wanted.value, BY)
    if (!taken.ok) return reply.code(statuses[taken.code]).send({ error: taken.message })
    const { id, verdict, reasons } = taken.run
    return reply.code(taken.isNew ? 201 : 200).send({ id, verdict, reasons })
  })
}
