import { pick } from '../../support/random.ts'
import { below, damaged, framingLines, lengths, oddNames, recased } from './damage.ts'

/** Replies of servers, and the same damaged. */

type Random = () => number

const token = ['a', 'ieof', 'x-1', "!#$%&'*+-.^_`|~", '0', 'B'.repeat(40)]
const quoted = ['"a b"', '""', '"\\""', '"a;b\t\\\\"', '"\xe9"', '","']
const blanks = ['', '', '', ' ', '  ', '\t']

const data = [
  ...[
    'a',
    '0\r\n\r\n',
    '\r\n',
    '5\r\nabcde\r\n',
    '{"jsonrpc":"2.0","id":1}',
    'data: {}\n\n',
    '\0',
    '\xe9\xff',
  ],
  ...['HTTP/1.1 200 OK\r\n\r\n', 'x'.repeat(300)],
]

/** Returns the number as digits of a chunk's size. */
function sizeOf(random: Random, length: number): string {
  const digits = length.toString(16)
  const zeros = random() < 0.3 ? '0'.repeat(below(random, 8)) : ''
  return zeros + (random() < 0.3 ? digits.toUpperCase() : digits)
}

/** Returns the extensions of a chunk; mostly none. */
function extensions(random: Random): string {
  let text = ''
  while (random() < 0.2) {
    text += `;${pick(random, token)}`
    if (random() < 0.6) text += `=${pick(random, random() < 0.5 ? token : quoted)}`
  }
  return text
}

const trailerLines = [
  'A: b',
  'X-Sum:1',
  'expires: \xe9',
  'B:',
  'C: \t d \t',
  'Server-Timing: a;b="c"',
  'a: b\tc',
]

function trailers(random: Random): string {
  let text = ''
  while (random() < 0.25) text += `${pick(random, trailerLines)}\r\n`
  return text
}

/** Returns a body in chunks, without fault. */
export function chunkedBody(random: Random): string {
  let text = ''
  for (let count = below(random, 4); count > 0; count--) {
    const piece = pick(random, data)
    text += `${sizeOf(random, piece.length)}${extensions(random)}\r\n${piece}\r\n`
  }
  return `${text}${sizeOf(random, 0)}${extensions(random)}\r\n${trailers(random)}\r\n`
}

/** Sizes of chunks that are wrong, or read differently by different programs. */
const oddSizes = [
  ...[
    '',
    ' ',
    '0x5',
    '+5',
    '-5',
    '5 ',
    '5\t',
    ' 5',
    '5_',
    '5g',
    'g',
    '5;',
    '5 ;a',
    '5; a',
    '5;a =b',
    '5;a= b',
  ],
  ...[
    '5;=b',
    '5;;a',
    '5;a="',
    '5;a="\n"',
    '5;a=(',
    '5;\xe9',
    '5;a\0',
    '5\0',
    '5,5',
    '5.0',
    '1e1',
    'ffffffffffffff',
  ],
  ...[
    '10000000000000005',
    'fffffffffffffffff',
    '0000000000000',
    '00000000000005',
    '8000000000000000',
    '5\r',
    '5\n',
  ],
]

/** Trailer lines about the message itself, or damaged. */
const oddTrailers = [
  ...[
    'Content-Length: 5',
    'Transfer-Encoding: chunked',
    'transfer-encoding: gzip',
    'Connection: close',
    ' a: b',
  ],
  ...[
    'a : b',
    'a',
    ': b',
    'a: b\nc: d',
    'a: b\rc: d',
    'a: \0',
    'Upgrade: x',
    'Content-Length : 5',
    'TE: a',
    '\ta',
  ],
  ...['Connection: upgrade\r\nUpgrade: x', 'Host: a', 'Trailer: x', `a: ${'x'.repeat(17_000)}`, 'a: b\r\n c'],
]

/** Returns the text with one line of its framing changed, or with any character damaged. */
export function damagedChunks(random: Random, text: string): string {
  const lines = text.split('\r\n')
  const way = random()
  if (way < 0.2) lines[below(random, lines.length)] = pick(random, oddSizes)
  else if (way < 0.3) lines.splice(-2, 0, pick(random, oddTrailers))
  else if (way < 0.4)
    lines[below(random, lines.length)] += pick(random, [' ', '\r', '\n', ';a', '\0', '0', '\t'])
  else if (way < 0.45) lines.splice(below(random, lines.length), 1)
  else return damaged(random, text)
  return lines.join('\r\n')
}

const statusLines = ['HTTP/1.1 200 OK', 'HTTP/1.1 404 Not Found', 'HTTP/1.1 202 Accepted', 'HTTP/1.1 500 ']

const oddStatusLines = [
  ...[
    'HTTP/1.0 200 OK',
    'HTTP/1.2 200 OK',
    'http/1.1 200 OK',
    'HTTP/2 200',
    'HTTP/1.1  200 OK',
    'HTTP/1.1 20 OK',
  ],
  ...[
    'HTTP/1.1 2000 OK',
    'HTTP/1.1 200',
    'HTTP/1.1 200\tOK',
    ' HTTP/1.1 200 OK',
    'HTTP/1.1 +20 OK',
    'ICE/1.0 200 OK',
  ],
  ...[
    'HTTP/1.1 099 x',
    'HTTP/1.1 999 x',
    'HTTP/1.1 101 Switching',
    'HTTP/1.1 204 No Content',
    'HTTP/1.1 304 x',
    '',
  ],
  ...[
    'HTTP/1.1 200 \xe9',
    'HTTP/1.1 200 a\0',
    'HTTP/1.1 200 a\rb',
    '\r\nHTTP/1.1 200 OK',
    'HTTP/1.1 205 Reset',
    'x',
  ],
  ...['HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK', 'HTTP/1.1 103 Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK'],
]

const replyLines = [
  ...[
    'Content-Type: application/json',
    'content-type: text/event-stream',
    'Date: Tue, 01 Dec 2026 05:20:52 GMT',
  ],
  ...[
    'Server: uvicorn',
    'Connection: keep-alive',
    'Connection: close',
    'Keep-Alive: timeout=5',
    'Mcp-Session-Id: a',
  ],
  ...[
    'Cache-Control: no-cache',
    'Set-Cookie: a=b',
    'Set-Cookie: c=d',
    'X-Latin: \xe9',
    'Vary: Origin',
    'X-Empty:',
  ],
]

/** Returns a reply without fault: its status, its fields, and its body in one of the three ways. */
export function anyReply(random: Random): string {
  const lines: string[] = []
  for (let count = below(random, 6); count > 0; count--) {
    const [name, ...rest] = pick(random, replyLines).split(':')
    const written = random() < 0.3 ? recased(random, name!) : name!
    lines.push(`${written}:${pick(random, blanks)}${rest.join(':').trim()}${pick(random, blanks)}`)
  }
  const way = random()
  let body = pick(random, data)
  const at = below(random, lines.length + 1)
  if (way < 0.45) lines.splice(at, 0, `${pick(random, ['Content-Length', 'content-length'])}: ${body.length}`)
  else if (way < 0.9) {
    lines.splice(at, 0, `${pick(random, ['Transfer-Encoding', 'transfer-encoding'])}: chunked`)
    body = chunkedBody(random)
  }
  return [pick(random, statusLines), ...lines, '', body].join('\r\n')
}

/** Returns the reply with its head or its body damaged. */
export function damagedReply(random: Random, text: string): string {
  const end = text.indexOf('\r\n\r\n')
  const [head, body] = [text.slice(0, end), text.slice(end)]
  if (random() < 0.3) return head + damagedChunks(random, body)
  const lines = head.split('\r\n')
  const at = 1 + below(random, lines.length)
  const way = below(random, 7)
  if (way === 0) lines[0] = pick(random, oddStatusLines)
  else if (way === 1) lines.splice(at, 0, pick(random, framingLines))
  else if (way === 2) lines.splice(at, 0, `Content-Length: ${pick(random, lengths)}`)
  else if (way === 3) lines.splice(at, 0, `${pick(random, oddNames)}: ${pick(random, data)}`)
  else if (way === 4) lines.splice(at, 0, lines[at] ?? '')
  else if (way === 5)
    return (
      lines.join('\r\n').replace(/(content-length: ?).*/i, (_all, name) => name + pick(random, lengths)) +
      body
    )
  else return damaged(random, lines.join('\r\n')) + body
  return lines.join('\r\n') + body
}
