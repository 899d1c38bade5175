import { pick } from '../../support/random.ts'
import { below, damaged, framingLines, lengths, oddNames, recased } from './damage.ts'

/** Heads of requests: of real agents, and the same damaged. */

type Random = () => number
type Field = readonly [name: string, value: string]

const SESSION = '0f4c6d0e-5d3a-4b44-9e60-0d7b8f5a7c11'

/** The fields of a call by each agent; the value of a length is only a placeholder. */
const agents: readonly (readonly Field[])[] = [
  // undici, which is the fetch of Node and so of the TypeScript SDK.
  [
    ['host', '127.0.0.1:8080'],
    ['connection', 'keep-alive'],
    ['content-type', 'application/json'],
    ['accept', 'application/json, text/event-stream'],
    ['mcp-session-id', SESSION],
    ['mcp-protocol-version', '2025-06-18'],
    ['accept-language', '*'],
    ['sec-fetch-mode', 'cors'],
    ['user-agent', 'node'],
    ['accept-encoding', 'gzip, deflate'],
    ['content-length', '17'],
  ],
  // httpx, which the Python SDK uses.
  [
    ['Host', 'localhost:8080'],
    ['Accept', 'application/json, text/event-stream'],
    ['Accept-Encoding', 'gzip, deflate'],
    ['Connection', 'keep-alive'],
    ['User-Agent', 'python-httpx/0.28.1'],
    ['mcp-protocol-version', '2025-06-18'],
    ['mcp-session-id', SESSION],
    ['Content-Type', 'application/json'],
    ['Content-Length', '17'],
  ],
  // The net/http package of Go.
  [
    ['Host', 'gateway.internal'],
    ['User-Agent', 'Go-http-client/1.1'],
    ['Content-Length', '17'],
    ['Accept', 'application/json, text/event-stream'],
    ['Content-Type', 'application/json'],
    ['Mcp-Method', 'tools/call'],
    ['Mcp-Name', 'local__echo'],
    ['Mcp-Protocol-Version', '2026-07-28'],
    ['Accept-Encoding', 'gzip'],
  ],
  // curl, and the shortest head of all.
  [
    ['Host', '127.0.0.1:8080'],
    ['User-Agent', 'curl/7.88.1'],
    ['Accept', '*/*'],
    ['Content-Type', 'application/json'],
    ['Authorization', 'Bearer abc.def-ghi_jkl~mno+/='],
    ['Content-Length', '17'],
  ],
  [
    ['Host', 'a'],
    ['Content-Length', '17'],
  ],
  // A browser behind a proxy.
  [
    ['Host', 'gateway.example:443'],
    ['X-Forwarded-For', '203.0.113.7, 10.0.0.1'],
    ['X-Forwarded-Proto', 'https'],
    ['X-Request-Id', 'c0ffee'],
    ['Origin', 'https://app.example'],
    ['Cookie', 'a=b; c="d e"'],
    ['traceparent', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'],
    ['Content-Type', 'application/json; charset=utf-8'],
    ['Content-Length', '17'],
  ],
]

const paths: readonly string[] = ['/mcp', '/mcp/local', '/mcp/a.b-c_d~e', '/x', '/mcp/shop/v2']

/** Targets that need decoding, or mean different things to different readers. */
const oddTargets: readonly string[] = [
  ...[
    '/',
    '//mcp',
    '/mcp/',
    '/mcp//local',
    '/mcp/../mcp',
    '/./mcp',
    '/mcp/%2e',
    '/mcp/%00',
    '/mcp%',
    '/mcp?a=%',
  ],
  ...[
    '/mcp?',
    '/mcp#a',
    '/mcp;a',
    'http://a/mcp',
    'https://a:443/mcp',
    'a:80',
    '*',
    'mcp',
    '/m\xe9',
    '\\mcp',
  ],
  ...[
    '/mcp HTTP/1.1',
    '/mcp\t',
    '/..',
    '/mcp/..',
    '/a:b',
    '/@a',
    '/mcp\0',
    '',
    '/a,b',
    '/~',
    '/.well-known/x',
  ],
]

const starts: readonly string[] = [
  ...[
    'GET ',
    'post ',
    'POST  ',
    'POST\t',
    ' POST ',
    'POST',
    'PUT ',
    'CONNECT ',
    'PRI ',
    'OPTIONS ',
    'POST\r\n',
  ],
  ...[
    '\r\nPOST ',
    '\r\n\r\n POST ',
    '\nPOST ',
    'M-SEARCH ',
    'HEAD ',
    'P\0ST ',
    'XPOST ',
    'PO ST ',
    'POST \t',
  ],
]

const versions: readonly string[] = [
  ...[
    ' HTTP/1.0',
    ' HTTP/1.2',
    ' HTTP/2.0',
    ' http/1.1',
    '  HTTP/1.1',
    ' HTTP/1.1 ',
    '\tHTTP/1.1',
    ' HTTP/1.10',
  ],
  ...[' HTTP/01.1', ' HTTP/1,1', ' HTTP/ 1.1', '', ' ', ' HTTP/1.1\r', ' HTTP/0.9', ' ICE/1.0', ' RTSP/1.0'],
]

const blanks: readonly string[] = ['', ' ', '  ', '\t', ' \t ', '\t\t', '        ']

/** Values that are valid, and easily read wrongly. */
const values: readonly string[] = [
  ...[
    '',
    ' ',
    'a',
    'a b',
    'a\tb',
    ':',
    'a: b',
    '"',
    '\\',
    'a;b',
    '=?base64?w6k=?=',
    '0',
    'x'.repeat(300),
    '\x7f',
  ],
  ...[
    '\xe9',
    '\xff',
    'a\0b',
    'a\rb',
    'a\nb',
    'a\r\n b',
    '\x01',
    'HTTP/1.1',
    'chunked',
    'Content-Length: 5',
    '~',
    '!',
  ],
]

/** A head taken apart. */
interface Draft {
  start: string
  target: string
  version: string
  lines: string[]
}

type Change = (draft: Draft, random: Random) => void

const place = (draft: Draft, random: Random) => below(random, draft.lines.length)

const changeLine = (change: (line: string, random: Random) => string): Change => {
  return (draft, random) => {
    if (draft.lines.length === 0) return
    const at = place(draft, random)
    draft.lines[at] = change(draft.lines[at]!, random)
  }
}

const insert = (draft: Draft, random: Random, line: string) =>
  draft.lines.splice(below(random, draft.lines.length + 1), 0, line)

/** Changes after which a head is mostly still usual. */
const harmless: readonly Change[] = [
  changeLine((line, random) => {
    const colon = line.indexOf(':')
    return recased(random, line.slice(0, colon)) + line.slice(colon)
  }),
  changeLine((line, random) => line.replace(/: ?/, () => `:${pick(random, blanks)}`)),
  changeLine((line, random) => line + pick(random, blanks)),
  (draft, random) => {
    const [line] = draft.lines.splice(place(draft, random), 1)
    if (line !== undefined) insert(draft, random, line)
  },
  (draft, random) => draft.lines.splice(place(draft, random), 1),
  (draft, random) => insert(draft, random, `${pick(random, oddNames)}: ${pick(random, values)}`),
  (draft, random) => insert(draft, random, `x-${below(random, 1e6)}: ${'v'.repeat(below(random, 200))}`),
  (draft, random) => {
    const count = below(random, 60)
    for (let n = 0; n < count; n++) draft.lines.push(`x-${n}: ${n}`)
  },
]

const length: Change = (draft, random) => {
  const at = draft.lines.findIndex((line) => /^content-length:/i.test(line))
  const line = `Content-Length:${pick(random, blanks)}${pick(random, lengths)}${pick(random, blanks)}`
  if (at === -1 || random() < 0.2) insert(draft, random, line)
  else draft.lines[at] = line
}

/** Changes after which another program may read another request. */
const harmful: readonly Change[] = [
  length,
  length,
  (draft, random) => insert(draft, random, pick(random, framingLines)),
  (draft, random) => insert(draft, random, recased(random, pick(random, framingLines))),
  (draft, random) => insert(draft, random, draft.lines[place(draft, random)] ?? ''),
  (draft, random) => insert(draft, random, ''),
  (draft, random) => (draft.target = pick(random, oddTargets)),
  (draft, random) => (draft.start = pick(random, starts)),
  (draft, random) => (draft.version = pick(random, versions)),
  changeLine((line, random) =>
    line.replace(':', () => pick(random, [' :', '\t:', '', '::', ':\r\n ', '\0:'])),
  ),
  changeLine((line, random) => pick(random, [' ', '\t', '\r', '\n', ':', '\0']) + line),
  changeLine((line, random) => `${line}\r\n${pick(random, [' ', '\t', '  x', ' : y'])}`),
  changeLine((line, random) => line + pick(random, values)),
  changeLine((line, random) => damaged(random, line)),
  (draft, random) => draft.lines.push(`x-long: ${'v'.repeat(below(random, 20_000))}`),
  (draft) => {
    for (let n = 0; n < 80; n++) draft.lines.push(`y-${n}: ${n}`)
  },
]

/** Returns a head without the empty line at its end, as Latin-1. */
export function anyHead(random: Random): string {
  const fields = pick(random, agents)
  const draft: Draft = {
    start: 'POST ',
    target: pick(random, paths),
    version: ' HTTP/1.1',
    lines: fields.map(([name, value]) => `${name}: ${value}`),
  }
  for (let count = below(random, 4); count > 0; count--) pick(random, harmless)(draft, random)
  const harm = random()
  if (harm < 0.55) pick(random, harmful)(draft, random)
  if (harm < 0.1) pick(random, harmful)(draft, random)
  let head = `${draft.start}${draft.target}${draft.version}\r\n${draft.lines.join('\r\n')}`
  if (harm > 0.4 && harm < 0.7) head = damaged(random, head)
  // The head of a connection ends at its first empty line, wherever damage has put it.
  const end = head.indexOf('\r\n\r\n')
  return end === -1 ? head : head.slice(0, end)
}
