import { END_OF_HEAD } from '../../../src/wire/http-head.ts'
import { LONGEST_USUAL_HEAD, readUsualRequest, type UsualRequest } from '../../../src/wire/http-request.ts'
import { countedTarget, type Fate } from './counted-target.ts'
import { below } from './damage.ts'
import { anyHead } from './heads.ts'
import { headersOf, Oracle, type SeenMessage } from './oracle.ts'

type Random = () => number

const NEXT_PATH = '/next'
const NEXT = `POST ${NEXT_PATH} HTTP/1.1\r\nHost: next\r\nContent-Length: 2\r\n\r\nok`

/** Longest body that a case sends whole, in bytes. */
const LONGEST_BODY = 4_096

/** One case in this many is also read byte by byte. */
const BYTE_BY_BYTE = 16

/** Bodies that are requests themselves, or the beginning of what a reader may expect behind a head. */
const bodies = [
  'POST /smuggled HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n',
  '0\r\n\r\nPOST /smuggled HTTP/1.1\r\nHost: a\r\n\r\n',
  '\r\n\r\n',
  '{"jsonrpc":"2.0"}\n',
].map((text) => text.repeat(Math.ceil(LONGEST_BODY / text.length)))

const oracle = new Oracle('requests')

/** Returns the difference between the request that the reader accepted and what llhttp saw; undefined for none. */
function difference(expected: UsualRequest, body: string, isWhole: boolean): string | undefined {
  const { error, messages } = oracle
  if (error !== undefined) return `llhttp refuses: ${error}`
  const [first, next, ...more] = messages
  if (first === undefined) return 'llhttp sees no request'
  const fault = headDifference(expected, first)
  if (fault !== undefined) return fault
  if (first.body !== body) return `llhttp sees the body ${JSON.stringify(first.body)}`
  if (!isWhole) return first.isComplete || next !== undefined ? 'llhttp sees the end too early' : undefined
  if (!first.isComplete || next === undefined) return 'llhttp does not see the end'
  return next.url === NEXT_PATH && next.raw.length === 4 && next.body === 'ok' && more.length === 0
    ? undefined
    : 'llhttp sees another next request'
}

function headDifference({ path, headers }: UsualRequest, first: SeenMessage): string | undefined {
  if (!first.isPost) return 'llhttp sees another method'
  if (first.version !== '1.1') return `llhttp sees the version ${first.version}`
  if (first.url !== path) return `llhttp sees the target ${JSON.stringify(first.url)}`
  if (first.upgrades) return 'llhttp sees an upgrade'
  if (!first.keepsAlive) return 'llhttp would close the connection'
  const seen = headersOf(first.raw)
  if (seen.expect !== undefined) return 'the server of Node answers Expect itself'
  const names = Object.keys(seen)
  if (names.length !== Object.keys(headers).length || 2 * names.length !== first.raw.length)
    return `llhttp sees the fields ${JSON.stringify(first.raw)}`
  const other = names.find((name) => seen[name] !== headers[name])
  return other === undefined
    ? undefined
    : `llhttp sees ${other} as ${JSON.stringify(seen[other])}, not ${JSON.stringify(headers[other])}`
}

/** Compares the reading of a head with llhttp's; the random numbers choose body and pieces. */
export function compareHead(head: string, random: Random, read = readUsualRequest): Fate {
  if (head.length > LONGEST_USUAL_HEAD) return 'refused'
  const usual = read(head)
  if (usual === undefined) return 'refused'
  const isWhole = usual.length <= LONGEST_BODY
  const body = bodies[below(random, bodies.length)]!.slice(0, isWhole ? usual.length : LONGEST_BODY)
  const bytes = Buffer.from(head + END_OF_HEAD + body + (isWhole ? NEXT : ''), 'latin1')
  const judge = (how: string): Fate | undefined => {
    const wrong = difference(usual, body, isWhole)
    return wrong === undefined ? undefined : { given: head, wrong: `${how}: ${wrong}` }
  }
  oracle.open().read(bytes)
  let fate = judge('whole')
  if (fate !== undefined) return fate
  const at = below(random, bytes.length)
  oracle.open().read(bytes.subarray(0, at)).read(bytes.subarray(at))
  fate = judge(`split at ${at}`)
  if (fate !== undefined) return fate
  if (below(random, BYTE_BY_BYTE) > 0) return 'accepted'
  oracle.open()
  for (let place = 0; place < bytes.length; place++) oracle.read(bytes.subarray(place, place + 1))
  return judge('byte by byte') ?? 'accepted'
}

/** Each case is a head of a real agent, mostly damaged. */
export const requestTarget = countedTarget(
  'a head that is read as a usual request is read the same by llhttp, and so are its body and the next request',
  (random) => compareHead(anyHead(random), random),
  { shortRuns: 5_000 },
)
