import type { Clock, Millis } from '../mesh/clock.ts'
import { roundedDuration } from '../units/duration.ts'
import { type Paint, plain, type Tone } from './colours.ts'
import { printable } from './printable.ts'

/**
 * The log for people: a line per event, with the time, the level, the server and a description. Each line of a server's
 * standard error is a log line too, up to a number per second and server.
 */

/** An event, as in the JSON log. */
export type LogEntry = Readonly<Record<string, unknown>>

const levels: readonly (readonly [from: number, name: string, tone: Tone | undefined])[] = [
  [60, 'fatal', 'bad'],
  [50, 'error', 'bad'],
  [40, 'warn', 'doubtful'],
  [30, 'info', 'good'],
  [20, 'debug', 'aside'],
  [0, 'trace', 'aside'],
]

/** Longest message of an event, and longest of each further text, in characters. */
const LONGEST_WORDS = 1_000
const LONGEST_VALUE = 200

/** Keys that `restOf` leaves out, because they are shown elsewhere in the line or are of use only to machines. */
const placed = new Set(['time', 'level', 'msg', 'server', 'stderr', 'err'])
const ofCalls = new Set([
  ...['method', 'tool', 'result', 'reason', 'error', 'durationMs', 'attempts', 'faults', 'fates', 'leftOut'],
  ...[
    'partial',
    'verdict',
    'sent',
    'rejectedBy',
    'overheadMs',
    'waitedMs',
    'intentSource',
    'spanId',
    'requestId',
  ],
])

export function lineOf(entry: LogEntry, paint: Paint = plain): string {
  const { time, level, server } = entry
  const [, name, tone] = levels.find(([from]) => Number(level) >= from) ?? [0, 'trace', 'aside']
  const isCall = entry.msg === 'call' && 'result' in entry
  const parts = [
    paint('aside', timeOf(time)),
    paint(tone ?? 'aside', name.padEnd(5)),
    ...(typeof server === 'string' ? [paint('name', printable(server, LONGEST_VALUE))] : []),
    isCall ? callWords(entry, paint) : eventWords(entry, paint, tone),
    ...restOf(entry, isCall).map((text) => paint('aside', text)),
  ]
  return parts.filter((part) => part !== '').join('  ')
}

export function stderrLine(server: string, text: string, paint: Paint = plain): string {
  return `${paint('name', printable(server, LONGEST_VALUE))} ${paint('aside', '│')} ${printable(text)}`
}

/** Formats a time of this machine's time zone: `14:02:11`; `--:--:--` for no time. */
export function timeOf(time: unknown): string {
  const date = new Date(typeof time === 'string' || typeof time === 'number' ? time : NaN)
  if (Number.isNaN(date.getTime())) return '--:--:--'
  return [date.getHours(), date.getMinutes(), date.getSeconds()]
    .map((part) => String(part).padStart(2, '0'))
    .join(':')
}

function eventWords({ msg, err }: LogEntry, paint: Paint, tone: Tone | undefined): string {
  const said = typeof msg === 'string' ? [msg] : []
  const words = printable([...said, ...errorWords(err)].join(': '), LONGEST_WORDS)
  return tone === 'bad' || tone === 'doubtful' ? paint(tone, words) : words
}

/** Returns the texts for an error: its message and the place where it was thrown. The JSON log has the whole stack. */
function errorWords(err: unknown): string[] {
  if (typeof err !== 'object' || err === null) return []
  const { type, message, stack } = err as Readonly<Record<string, unknown>>
  const where = typeof stack === 'string' ? /\n\s+(at [^\n]+)/.exec(stack)?.[1] : undefined
  const words = [type, message].filter((part) => typeof part === 'string' && part !== '').join(': ')
  return [`${words}${where === undefined ? '' : ` (${where})`}`]
}

/**
 * Returns the text for a call, such as `echo failed after 2s: no answer within 2s (attempt_timeout), 2 attempts,
 * faults: slow surfaced`.
 */
function callWords(entry: LogEntry, paint: Paint): string {
  const { method, tool, result, reason, error, durationMs, attempts, partial, verdict, leftOut } = entry
  const took = typeof durationMs === 'number' ? roundedDuration(durationMs) : '?'
  const text = (value: unknown) => printable(String(value), LONGEST_WORDS)
  const flawed = verdict === 'tool_error' ? ' with an error of the tool' : ''
  const [tone, ending] =
    result === 'returned' && error === undefined
      ? ([
          flawed === '' && partial === undefined ? 'good' : 'doubtful',
          `answered in ${took}${flawed}`,
        ] as const)
      : result === 'cancelled'
        ? (['aside', `given up by its agent after ${took}`] as const)
        : result === 'rejected'
          ? (['doubtful', `rejected after ${took}`] as const)
          : (['bad', `failed after ${took}`] as const)
  const why = error === undefined ? '' : `: ${text(error)}`
  const kind = reason ?? (result === 'returned' ? undefined : result)
  const fates = listOf(entry.fates) || listOf(entry.faults)
  const more = [
    ...(kind === undefined ? [] : [`(${text(kind)})`]),
    ...(partial === undefined ? [] : [`partial: ${text(partial)}`]),
    ...(typeof attempts === 'number' && attempts > 1 ? [`${attempts} attempts`] : []),
    ...(fates === '' ? [] : [`faults: ${fates}`]),
    ...(typeof leftOut === 'number' ? [`${leftOut} similar lines left out before`] : []),
  ]
  const words = `${paint('strong', text(tool ?? method))}  ${paint(tone, `${ending}${why}`)}`
  return more.length === 0 ? words : `${words} ${more.join(', ')}`
}

const listOf = (value: unknown): string =>
  Array.isArray(value) ? value.map((item) => printable(String(item), LONGEST_VALUE)).join(', ') : ''

/** Returns the remaining keys of an event, as `key=value`. */
function restOf(entry: LogEntry, isCall: boolean): string[] {
  return Object.entries(entry).flatMap(([key, value]) => {
    if (value === undefined || placed.has(key)) return []
    // Leaves out zeros of a call, because they say that nothing happened.
    if (isCall && (value === 0 || ofCalls.has(key))) return []
    const isTime = /(^m|M)s$/.test(key) && typeof value === 'number'
    const name = isTime ? key.slice(0, -'Ms'.length) || 'took' : key
    return [`${printable(name, LONGEST_VALUE)}=${isTime ? roundedDuration(value) : shown(value)}`]
  })
}

function shown(value: unknown): string {
  const isBare = typeof value === 'string' && /^[^\s"=]+$/.test(value)
  return printable(isBare ? value : JSON.stringify(value), LONGEST_VALUE)
}

/** Most lines per second of each server's standard error on a terminal, and most servers with a separate count. */
const STDERR_PER_SECOND = 20
const WINDOW_MS: Millis = 1_000
const MAX_SERVERS = 1_000

interface Window {
  shown: number
  leftOut: number
}

export interface TerminalLogParts {
  readonly clock: Pick<Clock, 'after'>
  readonly paint: Paint
  /** Writes a line; the argument has no line break. */
  readonly write: (line: string) => void
}

/**
 * Returns a function that shows a log entry on a terminal. At the end of each second, shows how many lines of a
 * server's standard error were dropped.
 */
export function terminalLog({ clock, paint, write }: TerminalLogParts): (entry: LogEntry) => void {
  const windows = new Map<string, Window>()

  function close(server: string): void {
    const { leftOut = 0 } = windows.get(server) ?? {}
    windows.delete(server)
    if (leftOut === 0) return
    const words = `${leftOut} ${leftOut === 1 ? 'line' : 'lines'} left out`
    write(`${stderrLine(server, '', paint)}${paint('aside', words)}`)
  }

  function takeError(server: string, text: string, dropped: number): void {
    let window = windows.get(server)
    if (window === undefined) {
      if (windows.size >= MAX_SERVERS) return
      window = { shown: 0, leftOut: 0 }
      windows.set(server, window)
      clock.after(WINDOW_MS, () => close(server))
    }
    window.leftOut += dropped
    if (window.shown === STDERR_PER_SECOND) window.leftOut++
    else {
      window.shown++
      write(stderrLine(server, text, paint))
    }
  }

  return (entry) => {
    const { stderr, server, dropped, msg } = entry
    if (typeof stderr === 'string' && msg === undefined)
      takeError(typeof server === 'string' ? server : '?', stderr, typeof dropped === 'number' ? dropped : 0)
    else write(lineOf(entry, paint))
  }
}
