import { pick } from '../../support/random.ts'

/** Damage to the text of HTTP messages, as hostile and careless programs write it. */

type Random = () => number

/** Returns a whole number below `end`. */
export const below = (random: Random, end: number): number => Math.floor(random() * end)

const put = (text: string, at: number, more: string, instead = 0) =>
  text.slice(0, at) + more + text.slice(at + instead)

/** Characters that end a name, a value, a line or a head, and characters on the border of what is allowed. */
const sharp: readonly string[] = [
  ...[
    ' ',
    '\t',
    '\r',
    '\n',
    '\r\n',
    '\n\r',
    '\r\n ',
    '\r\n\t',
    '\r\r\n',
    '\n\n',
    '\r\n\r\n',
    '\0',
    '\v',
    '\f',
  ],
  ...[':', ';', ',', '"', '(', ')', '/', '\\', '@', '[', '=', '{', '%', '?', '#', '*', '-', '+', '_', '.'],
  ...['\x01', '\x1f', '\x7f', '\x80', '\x85', '\xa0', '\xad', '\xff', '\xc3\xa9', '0', 'x', 'A'],
]

/** Returns the text with a random character, or one of the sharp characters, added, removed or replaced. */
export function damaged(random: Random, text: string): string {
  const at = below(random, text.length + 1)
  switch (below(random, 6)) {
    case 0:
      return put(text, at, pick(random, sharp))
    case 1:
      return put(text, at, pick(random, sharp), 1)
    case 2:
      return put(text, at, String.fromCharCode(below(random, 256)), 1)
    case 3:
      return put(text, at, '', 1 + below(random, 3))
    case 4:
      return put(text, at, text.slice(at, at + below(random, 40)))
    default: {
      // Damage at the end of a line is rare among all places, and has most consequences.
      const end = text.indexOf('\r\n', at)
      return end === -1 ? text + pick(random, sharp) : put(text, end, pick(random, sharp), below(random, 3))
    }
  }
}

/** Returns the text with the case of some letters changed. */
export function recased(random: Random, text: string): string {
  const way = below(random, 3)
  if (way === 0) return text.toUpperCase()
  if (way === 1) return text.toLowerCase()
  return text.replace(/[a-z]/gi, (letter) => (random() < 0.5 ? letter.toUpperCase() : letter.toLowerCase()))
}

/** Spellings of a length: few are digits only. */
export const lengths: readonly string[] = [
  ...[
    '0',
    '1',
    '2',
    '5',
    '17',
    '00005',
    '000000000000005',
    '0000000000000005',
    '+5',
    '-5',
    '-0',
    '5.',
    '5.0',
  ],
  ...['0x5', '5,5', '5, 5', '5,6', '5 5', '5\t5', '1e3', '5;', '"5"', "'5'", '', ' ', '5\0'],
  ...['9007199254740991', '9007199254740992', '9007199254740993', '18446744073709551616', '4294967301'],
  ...['999999999999999', '18446744073709551621', '5_0', '\xb2', '05', '0b1', '5\r\n 5', '5\x0b', 'five'],
]

/** Lines about codings and connections, in disguises seen in attacks. */
export const framingLines: readonly string[] = [
  'Transfer-Encoding: chunked',
  'transfer-encoding: CHUNKED',
  'Transfer-Encoding : chunked',
  'Transfer-Encoding\t: chunked',
  ' Transfer-Encoding: chunked',
  'Transfer-Encoding:\tchunked',
  'Transfer-Encoding:\x0bchunked',
  'Transfer-Encoding: \x00chunked',
  'Transfer-Encoding: xchunked',
  'Transfer-Encoding: chunked, identity',
  'Transfer-Encoding: identity, chunked',
  'Transfer-Encoding: gzip',
  'Transfer-Encoding: "chunked"',
  'Transfer-Encoding:\r\n chunked',
  'Transfer-Encoding\r\n: chunked',
  'X: x\nTransfer-Encoding: chunked',
  'X: x\rTransfer-Encoding: chunked',
  'X: x\r\r\nTransfer-Encoding: chunked',
  'Transfer_Encoding: chunked',
  'Transfer-Encoding\x00: chunked',
  'Tr\xe4nsfer-Encoding: chunked',
  'Transfer-Encoding: chun\xadked',
  'TE: trailers, chunked',
  'Trailer: Content-Length',
  'Expect: 100-continue',
  'Expect: 200-ok',
  'Upgrade: websocket',
  'Upgrade: h2c',
  'HTTP2-Settings: AAMAAABkAAQAAP__',
  'Connection: close',
  'Connection: Upgrade',
  'Connection: Upgrade, HTTP2-Settings',
  'Connection: keep-alive, Upgrade',
  'Connection: close, keep-alive',
  'Connection: KEEP-ALIVE',
  'Connection: keep-alive\t',
  'Connection: Content-Length',
  'Connection:',
  'Proxy-Connection: close',
  'Keep-Alive: timeout=5',
  'Content-Encoding: gzip',
  'Host: other.example',
  'Host:',
  'X-Forwarded-Proto: https',
]

/** Names on which objects, tables and lists of names may fail. */
export const oddNames: readonly string[] = [
  ...['__proto__', 'constructor', 'toString', 'hasOwnProperty', '__defineGetter__', 'valueOf', 'prototype'],
  ...[
    'set-cookie',
    'cookie',
    'age',
    'etag',
    'from',
    'referer',
    'user-agent',
    'authorization',
    'location',
    '0',
  ],
  ...[
    "!#$%&'*+-.^_`|~",
    'x',
    'X-Very-Long-Name'.repeat(20),
    'content_length',
    'Content-Length2',
    'hos',
    'hosts',
  ],
]
