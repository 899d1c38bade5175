import { randomUUID } from 'node:crypto'
import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { parseJson } from '../../protocol/jsonrpc.ts'
import { failureReasons } from './probe.ts'
import { makeFolder } from '../../units/folder.ts'
import { nameAside } from '../../units/name-aside.ts'

/** The events of an incident sent to webhooks, each once: begin, long duration, end. */
export const noticeEvents = ['opened', 'escalated', 'closed'] as const
export type NoticeEvent = (typeof noticeEvents)[number]

/** The largest time value of a `Date`. */
const LATEST: Millis = 8.64e15

/** Earliest plausible date: no gateway existed before, so an earlier date comes from an unset clock. */
const EARLIEST: Millis = Date.UTC(2000)

const date = z.number().min(EARLIEST).max(LATEST)
const ms = z.number().min(0).max(LATEST)
const reason = z.enum(failureReasons)

const incident = z.object({
  id: z.string().min(1).max(64),
  server: z.string().min(1).max(64),
  /** The reason of the probe that opened the incident. */
  reason,
  /** All reasons so far, in order of first occurrence. */
  reasons: z.array(reason).max(failureReasons.length),
  /** Message of the latest probe failing for `reason`, without secrets. */
  message: z.string().max(1_000),
  /** Time of the last good probe; the outage began later. */
  lastWellAt: date.optional(),
  /** Time of the first sign of trouble: a failed probe, an undelivered call, or the end of a session. */
  startedAt: date,
  detectedAt: date,
  escalatedAt: date.optional(),
  endedAt: date.optional(),
  /**
   * Durations by the monotonic clock, in milliseconds; absent unless measured in a single process. The detection is
   * measured from the last good probe, or from the first sign if not a probe; the others from the start.
   */
  detectedAfterMs: ms.optional(),
  escalatedAfterMs: ms.optional(),
  recoveredAfterMs: ms.optional(),
  /** `recovered`: by a good probe; `removed`: the server left the config; `unwatched`: its probes were turned off. */
  end: z.enum(['recovered', 'removed', 'unwatched']).optional(),
  /** Time of the last probe of the open incident. */
  lastSeenAt: date,
  /** Period without a running gateway during the incident; durations over a gap are upper bounds. */
  gap: z.object({ from: date, to: date }).optional(),
  /** The states of the incident's notices, by webhook. */
  notices: z.record(
    z.string(),
    z.partialRecord(z.enum(noticeEvents), z.enum(['pending', 'delivered', 'failed'])),
  ),
  /** The receiver of each webhook at the time of the notice, by `receiverOf`. */
  receivers: z.record(z.string(), z.string().max(64)).default({}),
})

/** One outage of a server. All times are in milliseconds since the Unix epoch. */
export type Incident = z.output<typeof incident>

const file = z.object({ incidents: z.array(incident).max(100_000) })

/** Largest clock error not reported, in milliseconds. */
const CLOCK_MS: Millis = 60_000

/** Most incidents kept, and most bytes of their file. Past either limit, the oldest ended incidents are dropped. */
const MAX_INCIDENTS = 1_000
const MAX_BYTES = 2 * 1024 ** 2

/** Changes within this time, in milliseconds, are written together. */
const WRITE_MS: Millis = 100

/** Pause after a failed write, in milliseconds. */
const RETRY_MS: Millis = 5_000

export interface IncidentsParts {
  readonly clock: Pick<Clock, 'wall' | 'after'>
  /** `gateway.stateDir`; undefined: incidents end with the process. */
  readonly stateDir: string | undefined
  /** Called on a failure to read or write, once until the next success. */
  readonly onProblem: (problem: string) => void
}

/** The store of open and ended incidents, in `{stateDir}/incidents.json`. */
export class Incidents {
  readonly #parts: IncidentsParts
  /** Incidents by id, oldest first. */
  readonly #kept = new Map<string, Incident>()
  readonly #open = new Map<string, string>()
  #cancel: Cancel | undefined
  #writing: Promise<void> = Promise.resolve()
  #isChanged = false
  #isFailing = false
  /** The file exists but could not be read, so the store must not overwrite its content. */
  #isUnreadable = false
  #isClosed = false

  constructor(parts: IncidentsParts) {
    this.#parts = parts
  }

  /** Reads the incidents of an earlier process. Renames a damaged file, keeps an unreadable file. Never rejects. */
  async load(): Promise<void> {
    const path = this.#path
    if (path === undefined) return
    try {
      const text = await readFile(path, 'utf8')
      const read = file.safeParse(parseJson(text))
      if (read.success) this.#keepAll(this.#byNow(path, read.data.incidents))
      else {
        const aside = await nameAside(path)
        await rename(path, aside)
        this.#parts.onProblem(`${path} is damaged: the file is kept as ${aside}`)
      }
    } catch (error) {
      const { code = 'unknown' } = error as NodeJS.ErrnoException
      if (code === 'ENOENT') return
      this.#isUnreadable = true
      this.#parts.onProblem(
        `${path} cannot be read (${code}): the file stays unchanged, and new incidents are not written`,
      )
    }
  }

  /** Returns all incidents, newest first. */
  list(): readonly Incident[] {
    return [...this.#kept.values()].reverse()
  }

  get(id: string): Incident | undefined {
    return this.#kept.get(id)
  }

  /** The open incidents of all servers. */
  get open(): readonly Incident[] {
    return [...this.#open.values()].flatMap((id) => this.#kept.get(id) ?? [])
  }

  /** Open incidents followed by a later incident of the same server, only in a damaged file. */
  get superseded(): readonly Incident[] {
    return this.list().filter(
      ({ id, server, endedAt }) => endedAt === undefined && this.#open.get(server) !== id,
    )
  }

  openOf(server: string): Incident | undefined {
    const id = this.#open.get(server)
    return id === undefined ? undefined : this.#kept.get(id)
  }

  /** Opens an incident; a server must have no other open incident. */
  begin(facts: Omit<Incident, 'id' | 'reasons' | 'lastSeenAt' | 'notices' | 'receivers'>): Incident {
    const made: Incident = {
      ...facts,
      id: randomUUID(),
      reasons: [facts.reason],
      lastSeenAt: facts.detectedAt,
      notices: {},
      receivers: {},
    }
    this.#keep(made)
    this.#prune()
    this.#changed()
    return made
  }

  /**
   * Changes an incident and returns it; undefined when no longer kept. `isMinor`: the change causes no write by itself.
   */
  change(id: string, changes: Partial<Incident>, isMinor = false): Incident | undefined {
    const before = this.#kept.get(id)
    if (before === undefined) return undefined
    const after = { ...before, ...changes }
    this.#keep(after)
    if (!isMinor) this.#changed()
    return after
  }

  /** Writes pending changes now. Never rejects. */
  async save(): Promise<void> {
    if (this.#path === undefined) return
    this.#cancel?.()
    this.#cancel = undefined
    await this.#write()
  }

  /** Writes pending changes, and schedules no further write. Never rejects. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.save()
  }

  get #path(): string | undefined {
    const { stateDir } = this.#parts
    return stateDir === undefined || this.#isUnreadable ? undefined : join(stateDir, 'incidents.json')
  }

  /**
   * Replaces future times by now, because the clock may have been set back. A future time left in place could prevent
   * an escalation, or make each later incident a relapse.
   */
  #byNow(path: string, incidents: readonly Incident[]): readonly Incident[] {
    const now = this.#parts.clock.wall()
    const far = incidents.filter((one) => latestIn(one) > now + CLOCK_MS).length
    if (far > 0)
      this.#parts.onProblem(`${path} has future times in ${far} incidents: the current time is used instead`)
    return incidents.map((one) => (latestIn(one) > now ? heldBy(now, one) : one))
  }

  #keepAll(incidents: readonly Incident[]): void {
    for (const one of incidents.toSorted((a, b) => a.detectedAt - b.detectedAt))
      if (!this.#kept.has(one.id)) this.#keep(one)
  }

  #keep(one: Incident): void {
    this.#kept.set(one.id, one)
    if (one.endedAt === undefined) this.#open.set(one.server, one.id)
    else if (this.#open.get(one.server) === one.id) this.#open.delete(one.server)
  }

  /** Drops ended incidents, oldest first, until at most `most` incidents are left; open incidents stay. */
  #prune(most = MAX_INCIDENTS): void {
    for (const { id, endedAt } of this.#kept.values()) {
      if (this.#kept.size <= most) return
      if (endedAt !== undefined) this.#kept.delete(id)
    }
  }

  #changed(): void {
    this.#isChanged = true
    this.#writeIn(WRITE_MS)
  }

  #writeIn(waitMs: Millis): void {
    if (this.#path !== undefined && !this.#isClosed)
      this.#cancel ??= this.#parts.clock.after(waitMs, () => void this.#due())
  }

  #due(): Promise<void> {
    this.#cancel = undefined
    return this.#write()
  }

  /** Writes one after the other, each with the latest state. */
  #write(): Promise<void> {
    return (this.#writing = this.#writing.then(() => this.#writeNow()))
  }

  async #writeNow(): Promise<void> {
    const path = this.#path
    if (path === undefined || !this.#isChanged) return
    this.#isChanged = false
    try {
      makeFolder(this.#parts.stateDir as string, 0o700)
      await writeFile(`${path}.new`, this.#text(), { mode: 0o600 })
      await rename(`${path}.new`, path)
      this.#isFailing = false
    } catch (error) {
      const { code = 'unknown' } = error as NodeJS.ErrnoException
      if (!this.#isFailing) this.#parts.onProblem(`${path} cannot be written (${code})`)
      this.#isFailing = this.#isChanged = true
      this.#writeIn(RETRY_MS)
    }
  }

  #text(): string {
    for (;;) {
      const text = JSON.stringify({ incidents: [...this.#kept.values()] })
      const ended = this.#kept.size - this.#open.size
      if (Buffer.byteLength(text) <= MAX_BYTES || ended === 0) return text
      this.#prune(this.#kept.size - Math.ceil(ended / 4))
    }
  }
}

const dates = ['lastWellAt', 'startedAt', 'detectedAt', 'escalatedAt', 'endedAt', 'lastSeenAt'] as const

const latestIn = (one: Incident): Millis =>
  Math.max(one.gap?.from ?? 0, one.gap?.to ?? 0, ...dates.map((name) => one[name] ?? 0))

/** Returns an incident with all dates limited to `now`. */
function heldBy(now: Millis, one: Incident): Incident {
  const held = dates.flatMap((name) => {
    const at = one[name]
    return at === undefined ? [] : [[name, Math.min(at, now)] as const]
  })
  const { gap } = one
  return {
    ...one,
    ...Object.fromEntries(held),
    ...(gap !== undefined && { gap: { from: Math.min(gap.from, now), to: Math.min(gap.to, now) } }),
  }
}
