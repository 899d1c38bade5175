import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { Readable } from 'node:stream'
import type { JournalEntry } from '../../chaos/journal/entry.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import { keepAlive, type Millis, systemClock } from '../../mesh/clock.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { plain } from '../../telemetry/colours.ts'
import { printable } from '../../telemetry/printable.ts'
import { lineOf, type LogEntry, stderrLine } from '../../telemetry/terminal-log.ts'
import { readLines } from '../../upstreams/stdio/lines.ts'
import {
  controlAccess,
  Misuse,
  optionLines,
  type Output,
  runCommand,
  type Values,
} from '../shared/arguments.ts'
import { type Control, controlAt } from '../shared/control.ts'

/** Minimum levels, with pino's numbers. */
const levels = { trace: 10, debug: 20, info: 30, warn: 40, error: 50, fatal: 60 } as const

const options = {
  follow: { kind: 'flag', about: 'follows new events until interrupted' },
  server: { kind: 'text', value: 'NAME', about: 'only events of this server' },
  level: {
    kind: 'choice',
    of: Object.keys(levels),
    value: 'LEVEL',
    default: 'trace',
    about: 'only events of this level or above: trace, debug, info, warn, error or fatal',
  },
  last: {
    kind: 'integer',
    max: 1_000,
    value: 'N',
    default: '50',
    about: 'without FILE, the number of latest events',
  },
  ...controlAccess,
} as const

const usage = `breakwater logs [FILE | -]

  With FILE, or - for standard input: prints a gateway's JSON log, an event per line, in readable form:
  kubectl logs deploy/breakwater | breakwater logs -
  Without: prints events of a running gateway, from its control port. The gateway keeps no log, but knows the last
  change of each server and breaker, and the journal of its faults.

${optionLines(options)}`

type Asked = Values<typeof options>

export function logs(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options }, out, async (values, [file, ...rest]) => {
    if (rest[0] !== undefined) throw new Misuse(`unexpected argument "${rest[0]}"`)
    if (file !== undefined) return readLog(file, values, out)
    return tell(controlAt({ base: values.control, token: values.token, env }), values, out)
  })
}

/** Longest line parsed as an event, in bytes, and poll interval of a followed file. */
const MAX_LINE = 1024 ** 2
const LOOK_MS: Millis = 500

async function readLog(file: string, values: Asked, out: Output): Promise<number> {
  const letEnd = keepAlive()
  try {
    const text = file === '-' ? process.stdin : Readable.from(growing(file, values.follow, out))
    await readLines(
      text,
      () => MAX_LINE,
      (line) => {
        if (typeof line === 'string') show(line, values, out)
        else out.stdout('(a line of more than 1 MiB)')
      },
    )
    return 0
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    out.stderr(
      `breakwater: ${file} cannot be read: ${code === 'ENOENT' ? 'no such file' : printable(message)}`,
    )
    return 1
  } finally {
    letEnd()
  }
}

/**
 * Yields the content of a file. With `follow`, also yields later additions, and reads a truncated file from its start
 * again.
 */
async function* growing(file: string, follow: boolean, out: Output): AsyncGenerator<Buffer> {
  const never = new Cancellation()
  for (let offset = 0; ;) {
    for await (const chunk of createReadStream(file, { start: offset }) as AsyncIterable<Buffer>) {
      offset += chunk.length
      yield chunk
    }
    if (!follow) return
    await systemClock.sleep(LOOK_MS, never)
    if (out.isClosed === true) return
    if ((await stat(file)).size < offset) offset = 0
  }
}

/** Shows a line of a log; lines that are no events, such as the banner, stay unchanged. */
function show(line: string, values: Asked, out: Output): void {
  const entry = parseJson(line)
  if (isObject(entry) && 'level' in entry) return showEntry(entry, values, out)
  if (line.trim() !== '' && values.server === undefined) out.stdout(printable(line))
}

function showEntry(entry: LogEntry, { server, level }: Asked, out: Output): void {
  if (server !== undefined && entry.server !== server) return
  if (Number(entry.level) < levels[level as keyof typeof levels]) return
  const paint = out.paint ?? plain
  const { stderr, msg } = entry
  if (typeof stderr === 'string' && msg === undefined)
    out.stdout(stderrLine(typeof entry.server === 'string' ? entry.server : '?', stderr, paint))
  else out.stdout(lineOf(entry, paint))
}

/** Poll interval for new events of a running gateway. */
const ASK_MS: Millis = 1_000

/** Prints a gateway's own events in order. */
async function tell(control: Control, values: Asked, out: Output): Promise<number> {
  const letEnd = keepAlive()
  const never = new Cancellation()
  const told = new Set<string>()
  let since: number | undefined
  try {
    for (;;) {
      const found = await news(control, since)
      if (typeof found === 'string') {
        out.stderr(`breakwater: ${found}`)
        return 1
      }
      const fresh = found.events.filter(({ key }) => !told.has(key))
      const isFirst = since === undefined
      told.clear()
      for (const { key } of found.events) told.add(key)
      since = found.next
      const entries = fresh.map(({ entry }) => entry).sort((a, b) => Number(a.time) - Number(b.time))
      for (const entry of isFirst ? entries.slice(-values.last) : entries) showEntry(entry, values, out)
      if (!values.follow || out.isClosed === true) return 0
      await systemClock.sleep(ASK_MS, never)
    }
  } finally {
    letEnd()
  }
}

/** An event with a unique key. */
interface Event {
  readonly key: string
  readonly entry: LogEntry
}

/** Returns the gateway's current state and its journal entries after `since`, or the reason for a failure in words. */
async function news(
  control: Control,
  since: number | undefined,
): Promise<{ readonly events: readonly Event[]; readonly next: number } | string> {
  const query = since === undefined ? 'limit=1000' : `limit=1000&since=${since}`
  const answers = await Promise.all(
    ['/admin/servers', '/admin/breakers', `/admin/chaos/journal?${query}`].map((path) =>
      control({ method: 'GET', path }),
    ),
  )
  const refused = answers.find((answered) => !answered.ok)
  if (refused !== undefined && !refused.ok) return refused.message
  const [servers, breakers, journal] = answers.map((answered) => (answered.ok ? answered.value : undefined))
  const entries =
    isObject(journal) && Array.isArray(journal.entries) ? (journal.entries as JournalEntry[]) : []
  return {
    events: [
      ...listIn(servers).map(ofServer),
      ...listIn(breakers).flatMap(ofBreaker),
      ...entries.flatMap(ofJournal),
    ],
    next: isObject(journal) && typeof journal.next === 'number' ? journal.next : (since ?? 0),
  }
}

const listIn = (value: unknown) => (Array.isArray(value) ? value.filter(isObject) : [])

const wordOf = (value: unknown, otherwise: string) => (typeof value === 'string' ? value : otherwise)

function ofServer({ name, state, since, error }: Readonly<Record<string, unknown>>): Event {
  const msg =
    state === 'down' ? `server is down: ${wordOf(error, 'no reason known')}` : `server is ${String(state)}`
  const entry = { time: Date.parse(String(since)), level: state === 'down' ? 40 : 30, server: name, msg }
  return { key: `server ${String(name)} ${String(state)} ${String(since)}`, entry }
}

function ofBreaker(breaker: Readonly<Record<string, unknown>>): Event[] {
  const { set, server, tool, replica, state, since, why, generation } = breaker
  // A breaker of generation 0 has never changed its state, so there is no event.
  if (generation === 0) return []
  // The gateway lists the gate of a server as a breaker with the tool `*`.
  const what = tool === '*' ? 'gate' : `breaker of ${wordOf(tool, 'other requests')}`
  const entry = {
    time: since,
    level: state === 'open' ? 40 : 30,
    server,
    msg: `${what} is ${String(state)}`,
    why,
  }
  return [{ key: ['breaker', set, server, tool, replica, generation, state].map(String).join(' '), entry }]
}

function ofJournal(entry: JournalEntry): Event[] {
  const { seq, at: time } = entry
  const key = `journal ${seq}`
  switch (entry.kind) {
    case 'control': {
      const { type, by, why } = entry
      return [{ key, entry: { time, level: 40, msg: `chaos: ${type}`, by, why } }]
    }
    case 'decision': {
      const { decision, fault, type, call } = entry
      const { server, tool, method } = call
      const msg = `fault ${fault} (${type}) hit ${tool ?? method}`
      return decision === 'injected' ? [{ key, entry: { time, level: 30, server, msg } }] : []
    }
    case 'fate': {
      const { fault, fate } = entry
      return fate === undefined ? [] : [{ key, entry: { time, level: 30, msg: `fault ${fault}: ${fate}` } }]
    }
  }
}
