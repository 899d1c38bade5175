import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { whyUnreadable } from '../config/files/read-text.ts'
import {
  call as callSchema,
  FORMAT,
  header as headerSchema,
  lost as lostSchema,
  outcome as outcomeSchema,
  type RecordedCall,
  type RecordedOutcome,
  type RecordingHeader,
} from '../telemetry/recording/format.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import type { Overlong } from '../protocol/overlong.ts'
import { readLines } from '../upstreams/stdio/lines.ts'
import { numbered } from '../units/numbered.ts'

/** Thrown when a file cannot be replayed. The message gives the reason. */
export class RecordingError extends Error {}

/** A line of a recording, from 1. */
export interface Place {
  readonly file: string
  readonly line: number
}

/** The recorded calls of a gateway. */
export interface Recording {
  /** Header of the newest file. */
  readonly header: RecordingHeader
  readonly calls: readonly RecordedCall[]
  /** The line of each call. */
  readonly places: ReadonlyMap<RecordedCall, Place>
  /** Reported outcomes of tasks, in the order of the reports. */
  readonly outcomes: readonly RecordedOutcome[]
  /** Whether calls are known to be missing: lost, damaged, or in a missing file. */
  readonly hasGaps: boolean
  /** Sentences about gaps in the recording. */
  readonly notes: readonly string[]
}

/** Some editors write a byte order mark before the first line. */
const BYTE_ORDER_MARK = /^\ufeff/

/** Longest line, in bytes. A header names all tools and can be long; a longer line counts as damaged. */
const MAX_LINE = 16 * 1024 ** 2

/** Most calls and outcomes of a recording, so that all of them fit into memory. */
const MAX_CALLS = 1_000_000

/**
 * Reads a recording line by line, from its last file: older parts FILE.1, FILE.2 … beside it come first. An unreadable
 * part is skipped with all parts before, and a note says so. Rejects with a `RecordingError` when there is no call to
 * replay.
 */
export async function readRecording(file: string): Promise<Recording> {
  const newest = await readPart(file, MAX_CALLS)
  if (newest === undefined) throw new RecordingError(`${file}: there is no such file`)
  const parts = [newest]
  const unreadable: string[] = []
  const { startedAt } = newest.header
  let room = MAX_CALLS - sizeOf(newest)
  for (let number = 1, left = newest.header.part - 1; left > 0; number++, left--) {
    const older = await readPart(`${file}.${number}`, room).catch((error: unknown) => {
      if (!(error instanceof RecordingError)) throw error
      unreadable.push(error.message)
    })
    if (older?.header.startedAt !== startedAt || older.header.part !== left) break
    parts.unshift(older)
    room -= sizeOf(older)
  }
  const calls = parts.flatMap((part) => part.calls).sort((one, other) => one.at - other.at)
  if (calls.length === 0)
    throw new RecordingError([`${file} holds no call`, ...notesOn(parts, calls)].join('; '))
  const places = parts.flatMap((part) =>
    part.calls.map((call, at) => [call, { file: part.file, line: part.lines[at]! }] as const),
  )
  return {
    header: newest.header,
    calls,
    places: new Map(places),
    outcomes: parts.flatMap((part) => part.outcomes),
    hasGaps: parts[0]!.header.part > 1 || parts.some(({ lost, damaged }) => lost > 0 || damaged.length > 0),
    notes: [...unreadable, ...notesOn(parts, calls)],
  }
}

interface Part {
  readonly file: string
  readonly header: RecordingHeader
  readonly calls: RecordedCall[]
  /** The number of each call's line. */
  readonly lines: number[]
  readonly outcomes: RecordedOutcome[]
  /** Calls lost because the disk was too slow. */
  lost: number
  /** Numbers of lines without a call, from 1, and whether the last line is damaged. */
  readonly damaged: number[]
  isCut: boolean
}

/** Undefined when the file does not exist. `room`: most calls to read. */
async function readPart(file: string, room: number): Promise<Part | undefined> {
  let part: Part | undefined
  let number = 0
  try {
    // A character device may be endless; a pipe is fine.
    if ((await stat(file)).isCharacterDevice())
      throw new RecordingError(`${file} cannot be read: it is a device`)
    await readLines(
      createReadStream(file) as AsyncIterable<Buffer>,
      () => MAX_LINE,
      (line) => {
        number++
        if (part === undefined)
          part = begun(file, typeof line === 'string' ? line.replace(BYTE_ORDER_MARK, '') : line)
        else take(part, line, number, room)
      },
    )
  } catch (error) {
    if (error instanceof RecordingError) throw error
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new RecordingError(`${file} cannot be read: ${whyUnreadable(error)}`)
  }
  if (part === undefined) throw new RecordingError(`${file} is empty: nothing has been recorded`)
  part.isCut = part.damaged.at(-1) === number
  return part
}

function begun(file: string, line: string | Overlong): Part {
  const value = jsonIn(line)
  const format = isObject(value) ? value.breakwaterRecording : undefined
  if (format !== undefined && format !== FORMAT)
    throw new RecordingError(
      `${file} is a recording of format ${JSON.stringify(format)}; this program reads format ${FORMAT}`,
    )
  const header = headerSchema.safeParse(value)
  if (!header.success)
    throw new RecordingError(`${file} is no recording of a gateway: its first line is no recording header`)
  return { file, header: header.data, calls: [], lines: [], outcomes: [], lost: 0, damaged: [], isCut: false }
}

const sizeOf = ({ calls, outcomes }: Part) => calls.length + outcomes.length

function take(part: Part, line: string | Overlong, number: number, room: number): void {
  const value = jsonIn(line)
  const call = callSchema.safeParse(value)
  const outcome = call.success ? undefined : outcomeSchema.safeParse(value).data
  if ((call.success || outcome !== undefined) && sizeOf(part) >= room)
    throw new RecordingError(
      `${part.file}: line ${number} is beyond the limit of ${MAX_CALLS} recorded calls and outcomes`,
    )
  if (call.success) {
    part.calls.push(call.data)
    part.lines.push(number)
    return
  }
  if (outcome !== undefined) return void part.outcomes.push(outcome)
  const gap = lostSchema.safeParse(value)
  if (gap.success) part.lost += gap.data.lost
  else if (isObject(value) && 'breakwaterRecording' in value)
    throw new RecordingError(
      `${part.file}: line ${number} begins another recording with another start time; put each recording into its own file`,
    )
  else part.damaged.push(number)
}

function jsonIn(line: string | Overlong): unknown {
  if (typeof line !== 'string') return undefined
  try {
    return JSON.parse(line)
  } catch {
    return undefined
  }
}

function notesOn(parts: readonly Part[], calls: readonly RecordedCall[]): string[] {
  const notes: string[] = []
  const { header } = parts[0]!
  if (header.part > 1)
    notes.push(
      `files 1 to ${header.part - 1} of the recording are missing, or cut off by a missing file: the first ${Math.round((calls[0]?.at ?? 0) / 1_000)} s are left out`,
    )
  if (header.sample < 1)
    notes.push(`${Number((header.sample * 100).toPrecision(6))} % of the tasks were recorded`)
  for (const { file, lost, damaged, isCut, calls } of parts) {
    if (lost > 0)
      notes.push(
        `${file}: ${lost} ${lost === 1 ? 'call is' : 'calls are'} missing, because the disk was too slow`,
      )
    const [first, ...more] = damaged
    if (first === undefined) continue
    const read = `${calls.length} ${calls.length === 1 ? 'call was' : 'calls were'} read`
    if (more.length === 0)
      notes.push(`${file}: line ${first} ${isCut ? 'is cut off' : 'holds no call'}: ${read}`)
    else
      notes.push(
        `${file}: ${numbered(damaged.length, 'line')} without a call, the first is line ${first}: ${read}`,
      )
  }
  const inArms = calls.filter(({ arm }) => arm !== undefined).length
  if (inArms > 0)
    notes.push(`${numbered(inArms, 'call')} ran in arms of experiments, under the arms' policies`)
  const cut = calls.filter(({ moreAttempts }) => moreAttempts !== undefined).length
  if (cut > 0) notes.push(`for ${numbered(cut, 'call')} not all attempts were recorded`)
  return notes
}

/** Returns sentences on calls that a replay plays in another way. */
export function notesOnReplay(calls: readonly RecordedCall[]): string[] {
  const stored = calls.filter(({ attempts, result }) => attempts.length === 0 && result === 'returned').length
  if (stored === 0) return []
  const [were, them] = stored === 1 ? ['was', 'it'] : ['were', 'them']
  return [
    `${numbered(stored, 'call')} ${were} answered without an attempt, for example by an idempotency key: the replay tries ${them}`,
  ]
}
