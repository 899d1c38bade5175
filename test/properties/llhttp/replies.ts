import { countedTarget, type Fate } from './counted-target.ts'
import { below } from './damage.ts'
import { Oracle } from './oracle.ts'
import { replySubjects, type Reading, type ReplySubject } from './reply-subjects.ts'

type Random = () => number

/** The next reply on the connection. */
const NEXT = 'HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok'

/** One case in this many is also read byte by byte by both. */
const BYTE_BY_BYTE = 16

/** The outcome of a reading: `over` names the place behind the last byte of the reply. */
interface Outcome {
  readonly reading: Reading
  readonly over: number | 'refused' | 'waits for more'
}

/** Feeds bytes in pieces; `sizeOf` returns the size of the next piece. */
function fed(subject: ReplySubject, bytes: Buffer, sizeOf: () => number): Outcome {
  const reading = subject.open()
  for (let at = 0; at < bytes.length;) {
    const piece = bytes.subarray(at, at + sizeOf())
    const count = reading.read(piece)
    if (count === -1) return { reading, over: 'refused' }
    if (reading.isOver) return { reading, over: at + count }
    if (count !== piece.length) throw new Error(`read ${count} of ${piece.length} bytes`)
    at += piece.length
  }
  return { reading, over: 'waits for more' }
}

const oracle = new Oracle('replies')

/** Returns the final reply as llhttp has seen it: interim replies come before. */
const finalSeen = () => oracle.messages.find(({ status }) => status >= 200)

/** Returns the difference between a reading and what llhttp has seen; undefined for none. */
function difference({ body, status, fields }: Reading, isComplete: boolean): string | undefined {
  if (oracle.error !== undefined) return `llhttp refuses: ${oracle.error}`
  const seen = finalSeen()
  if (seen === undefined) return 'llhttp sees no reply'
  if (seen.isComplete !== isComplete)
    return `llhttp ${seen.isComplete ? 'sees the end too early' : 'does not see the end'}`
  if (seen.upgrades) return 'llhttp sees an upgrade'
  if (seen.body !== body)
    return `llhttp sees the body ${JSON.stringify(seen.body)}, not ${JSON.stringify(body)}`
  if (status !== undefined && seen.status !== status) return `llhttp sees the status ${seen.status}`
  if (fields === undefined) return undefined
  const raw = seen.raw.map((text, at) => (at % 2 === 0 ? text.toLowerCase() : text))
  return raw.length === fields.length && raw.every((text, at) => text === fields[at])
    ? undefined
    : `llhttp sees the fields ${JSON.stringify(raw)}, not ${JSON.stringify(fields)}`
}

/** Compares a reply that is over: llhttp must miss the end before the last byte, and see the end with this byte. */
function compareOver(
  { before }: ReplySubject,
  reading: Reading,
  bytes: Buffer,
  end: number,
): string | undefined {
  oracle
    .open()
    .read(Buffer.from(before, 'latin1'))
    .read(bytes.subarray(0, end - 1))
  if (oracle.error === undefined && finalSeen()?.isComplete === true) return 'llhttp sees the end too early'
  oracle.read(bytes.subarray(end - 1, end))
  const wrong = difference(reading, true)
  if (wrong !== undefined || reading.keepsAlive === false) return wrong
  oracle.read(Buffer.from(NEXT))
  const next = oracle.messages.at(-1)
  return next?.status === 201 && next.body === 'ok' ? undefined : 'llhttp does not see the next reply'
}

/** Compares the reading of a text with llhttp's; the random numbers choose the pieces. */
export function compareReply(subject: ReplySubject, text: string, random: Random): Fate {
  const bytes = Buffer.from(text + NEXT, 'latin1')
  const whole = fed(subject, bytes, () => bytes.length)
  const others = [
    fed(subject, bytes, () => 1 + below(random, 40)),
    ...(below(random, BYTE_BY_BYTE) === 0 ? [fed(subject, bytes, () => 1)] : []),
  ]
  const wrong = (what: string): Fate => ({ given: text, wrong: what })
  for (const { reading, over } of others) {
    if (over !== whole.over) return wrong(`in pieces ${over}, not ${whole.over}`)
    if (over !== 'refused' && reading.body !== whole.reading.body) return wrong('in pieces another body')
  }
  if (whole.over === 'refused') return 'refused'
  if (whole.over !== 'waits for more') {
    const other = compareOver(subject, whole.reading, bytes, whole.over)
    return other === undefined ? 'accepted' : wrong(other)
  }
  oracle.open().read(Buffer.from(subject.before, 'latin1')).read(bytes)
  const mayEnd = whole.reading.end()
  if (!mayEnd) {
    // An incomplete reply is claimed by nobody: but llhttp must not take it for a complete one.
    return oracle.error === undefined && finalSeen()?.isComplete === true
      ? wrong('llhttp sees the end of a reply that waits for more')
      : 'refused'
  }
  oracle.end()
  const other = difference(whole.reading, true)
  return other === undefined ? 'accepted' : wrong(other)
}

/** A share of cases is undamaged: these must be accepted. */
const VALID = 0.3

export const replyTargets = replySubjects.map((subject) =>
  countedTarget(
    subject.name,
    (random) => {
      const text = subject.valid(random)
      if (random() >= VALID) return compareReply(subject, subject.damaged(random, text), random)
      const fate = compareReply(subject, text, random)
      return fate === 'refused' ? { given: text, wrong: 'a valid reply is refused' } : fate
    },
    { shortRuns: 5_000 },
  ),
)
