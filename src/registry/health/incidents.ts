import { randomUUID } from 'node:crypto'
import { lstat, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { parseJson } from '../../protocol/jsonrpc.ts'
import { failureReasons } from './probe.ts'
import { makeFolder } from '../../units/folder.ts'

/** The events of an incident that a webhook is told, each once: the incident began, it goes on for long, it is over. */
export const noticeEvents = ['opened', 'escalated', 'closed'] as const
export type NoticeEvent = (typeof noticeEvents)[number]

/** No date is later than that. */
const LATEST: Millis = 8.64e15

/** No gateway was there before that: whatever wrote an earlier date had no clock. */
const EARLIEST: Millis = Date.UTC(2000)

const date = z.number().min(EARLIEST).max(LATEST)
const ms = z.number().min(0).max(LATEST)
const reason = z.enum(failureReasons)

const incident = z.object({
  id: z.string().min(1).max(64),
  server: z.string().min(1).max(64),
  /** By the probe that made it one. */
  reason,
  /** All that there were, in the order in which they came first. */
  reasons: z.array(reason).max(failureReasons.length),
  /** Message of the latest probe that failed for `reason`; holds no secret. */
  message: z.string().max(1_000),
  /** When a probe found the server well last: it did not begin before. */
  lastWellAt: date.optional(),
  /** By the first sign of it: a probe that failed, a call that did not get through, a session that ended. */
  startedAt: date,
  detectedAt: date,
  escalatedAt: date.optional(),
  endedAt: date.optional(),
  /**
   * By the monotonic clock, in milliseconds; absent where no one process has measured it. To the detection from the last
   * probe that was well, or from the first sign where that was no probe; to the others from the start.
   */
  detectedAfterMs: ms.optional(),
  escalatedAfterMs: ms.optional(),
  recoveredAfterMs: ms.optional(),
  /**
   * `recovered`: a probe found the server well; `removed`: the server is in the config no more; `unwatched`: it has no
   * probes any more.
   */
  end: z.enum(['recovered', 'removed', 'unwatched']).optional(),
  /** When a probe looked last, while it was open. */
  lastSeenAt: date,
  /** While it was open no gateway looked from here to there; what is measured over that is an upper bound. */
  gap: z.object({ from: date, to: date }).optional(),
  /** The states of the incident's notices, by webhook. */
  notices: z.record(
    z.string(),
    z.partialRecord(z.enum(noticeEvents), z.enum(['pending', 'delivered', 'failed'])),
  ),
  /** The receiver behind each webhook when the webhook was told, as `receiverOf` names it. */
  receivers: z.record(z.string(), z.string().max(64)).default({}),
})

/** One outage of a server. All times are in milliseconds since the Unix epoch. */
export type Incident = z.output<typeof incident>

const file = z.object({ incidents: z.array(incident).max(100_000) })

/** The largest error of a clock that is not reported, in milliseconds. */
const CLOCK_MS: Millis = 60_000

/** Damaged files that are kept: the first ones, and the latest. */
const MAX_DAMAGED = 5

/** Most incidents that are kept, and most bytes of their file; past either, those that ended first go. Open ones stay. */
const MAX_INCIDENTS = 1_000
const MAX_BYTES = 2 * 1024 ** 2

/** Changes within this time are written together, in milliseconds. */
const WRITE_MS: Millis = 100

/** How soon a disk that refused is tried again, in milliseconds. */
const RETRY_MS: Millis = 5_000

export interface IncidentsParts {
  readonly clock: Pick<Clock, 'wall' | 'after'>
  /** `gateway.stateDir`; undefined: they end with the process. */
  readonly stateDir: string | undefined
  /** Hears that they could not be read or written; once until it works again. */
  readonly onProblem: (problem: string) => void
}

/** The incidents that there are and were, in `{stateDir}/incidents.json`. Knows nothing of what they are about. */
export class Incidents {
  readonly #parts: IncidentsParts
  /** Oldest first. */
  readonly #kept = new Map<string, Incident>()
  readonly #open = new Map<string, string>()
  #cancel: Cancel | undefined
  #writing: Promise<void> = Promise.resolve()
  #isChanged = false
  #isFailing = false
  /** The file is there and could not be read: what it holds must not be overwritten. */
  #isUnreadable = false
  #isClosed = false

  constructor(parts: IncidentsParts) {
    this.#parts = parts
  }

  /** Reads what an earlier process kept. A file that is damaged is put aside, one that cannot be read is left alone. Never rejects. */
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
        this.#parts.onProblem(`${path} is damaged; it is kept as ${aside}`)
      }
    } catch (error) {
      const { code = 'unknown' } = error as NodeJS.ErrnoException
      if (code === 'ENOENT') return
      this.#isUnreadable = true
      this.#parts.onProblem(
        `${path} cannot be read (${code}); it is left as it is, and nothing is written there`,
      )
    }
  }

  /** Newest first. */
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

  /** Open ones of servers that have a later one: only a damaged file has such. */
  get superseded(): readonly Incident[] {
    return this.list().filter(
      ({ id, server, endedAt }) => endedAt === undefined && this.#open.get(server) !== id,
    )
  }

  openOf(server: string): Incident | undefined {
    const id = this.#open.get(server)
    return id === undefined ? undefined : this.#kept.get(id)
  }

  /** Begins one; a server has at most one that is open. */
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

  /** Changes one, if it is still kept; `isMinor`: it need not be written for this alone. */
  change(id: string, changes: Partial<Incident>, isMinor = false): Incident | undefined {
    const before = this.#kept.get(id)
    if (before === undefined) return undefined
    const after = { ...before, ...changes }
    this.#keep(after)
    if (!isMinor) this.#changed()
    return after
  }

  /** Writes at once what has not been written. Resolves when that has succeeded or failed; never rejects. */
  async save(): Promise<void> {
    if (this.#path === undefined) return
    this.#cancel?.()
    this.#cancel = undefined
    await this.#write()
  }

  /** Writes what has not been written. Never rejects. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.save()
  }

  get #path(): string | undefined {
    const { stateDir } = this.#parts
    return stateDir === undefined || this.#isUnreadable ? undefined : join(stateDir, 'incidents.json')
  }

  /**
   * A time that is yet to come is taken for now: the clock may have been set back, which is no reason to forget all. One
   * that was left as it is could keep an incident from being escalated, or make each later one its relapse.
   */
  #byNow(path: string, incidents: readonly Incident[]): readonly Incident[] {
    const now = this.#parts.clock.wall()
    const far = incidents.filter((one) => latestIn(one) > now + CLOCK_MS).length
    if (far > 0)
      this.#parts.onProblem(
        `${path} has times that are yet to come in ${far} incidents: they are taken for now`,
      )
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

  /** One after the other, each with what is known by then. */
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

/** All that is a date of an incident. */
const dates = ['lastWellAt', 'startedAt', 'detectedAt', 'escalatedAt', 'endedAt', 'lastSeenAt'] as const

const latestIn = (one: Incident): Millis =>
  Math.max(one.gap?.from ?? 0, one.gap?.to ?? 0, ...dates.map((name) => one[name] ?? 0))

/** An incident with no date that is later than `now`. */
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

/** The name under which a damaged file is put aside: the first that is free, or the last one. */
async function nameAside(path: string): Promise<string> {
  const names = Array.from(
    { length: MAX_DAMAGED },
    (_, at) => `${path}.damaged${at === 0 ? '' : `.${at + 1}`}`,
  )
  for (const name of names) if (!(await isThere(name))) return name
  return names.at(-1)!
}

const isThere = (path: string): Promise<boolean> =>
  lstat(path).then(
    () => true,
    () => false,
  )
