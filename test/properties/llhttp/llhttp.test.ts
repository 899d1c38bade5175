import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ChunkReader } from '../../../src/wire/http-chunks.ts'
import { readFields } from '../../../src/wire/http-head.ts'
import { readUsualRequest } from '../../../src/wire/http-request.ts'
import { seeded } from '../../support/random.ts'
import { anyHead } from './heads.ts'
import { compareReply, replyTargets } from './replies.ts'
import { replySubjects } from './reply-subjects.ts'
import { compareHead, requestTarget } from './requests.ts'

/** The same cases in every run by default; `npm run test:fuzz` looks for others. */
const seed = Number(process.env.FUZZ_SEED ?? 20_261_201)

const run = async ({ check, tally }: typeof requestTarget, cases: number, print: (text: string) => void) => {
  const failure = await check({ seed, numRuns: cases })
  print(tally?.() ?? '')
  assert.equal(failure?.report, undefined, failure?.report)
}

test(`100,000 cases: ${requestTarget.name}`, (t) => run(requestTarget, 100_000, (text) => t.diagnostic(text)))

for (const target of replyTargets)
  test(`20,000 cases: ${target.name}`, (t) => run(target, 20_000, (text) => t.diagnostic(text)))

const HEAD = 'POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5'

const usualHeads = [
  HEAD,
  'POST /mcp HTTP/1.1\r\nhost:a\r\ncontent-length:5',
  'POST /mcp HTTP/1.1\r\nHOST: \t a  \r\nContent-Length:   00005  \r\nConnection: Keep-Alive',
  `${HEAD}\r\nconstructor: a\r\nx: \r\n!#$%&'*+-.^_\`|~: a\tb`,
  `${HEAD}\r\nx: ${'v'.repeat(8_000)}`,
  `${HEAD}\r\n${Array.from({ length: 62 }, (_, at) => `x-${at}: a`).join('\r\n')}`,
]

test('every usual head is accepted, and llhttp reads the same', () => {
  for (const head of usualHeads) assert.equal(compareHead(head, seeded(1)), 'accepted', head.slice(0, 200))
})

/** Heads that llhttp refuses or reads otherwise; earlier readers accepted the first two. */
const unusualHeads = [
  HEAD + '\t',
  `${HEAD}\r\nSet-Cookie: a=b`,
  `${HEAD}\r\nContent-Length: 5`,
  `${HEAD}\r\nHost: a`,
  `${HEAD}\r\nTransfer-Encoding: chunked`,
  `${HEAD}\r\nTransfer-Encoding : chunked`,
  `${HEAD}\r\nExpect: 100-continue`,
  `${HEAD}\r\nUpgrade: h2c`,
  `${HEAD}\r\nConnection: close`,
  `${HEAD}\r\nx: a\r\n b`,
  `${HEAD}\r\nx: a\nTransfer-Encoding: chunked`,
  `${HEAD}\r\nx: a\rTransfer-Encoding: chunked`,
  `${HEAD}\r\nx: a\0`,
  `${HEAD}\r\n: a`,
  `${HEAD}\r\n`,
  ...['+5', '-0', '0x5', '5,5', '5 5', '1e3', '', '9'.repeat(16), '0'].map((length) =>
    HEAD.replace(/5$/, length),
  ),
  ...['/', '//mcp', '/mcp?a', '/mcp%20', 'http://a/mcp', '*', '/mcp#a', '/m\xe9'].map((target) =>
    HEAD.replace('/mcp', target),
  ),
  ...[' HTTP/1.0', ' HTTP/1.2', ' http/1.1', '  HTTP/1.1', ' HTTP/1.1 '].map((version) =>
    HEAD.replace(' HTTP/1.1', version),
  ),
  `\r\n${HEAD}`,
  HEAD.toLowerCase(),
  'POST /mcp HTTP/1.1\r\nContent-Length: 5',
]

test('no unusual head is read as usual', () => {
  for (const head of unusualHeads) assert.equal(readUsualRequest(head), undefined, JSON.stringify(head))
})

/** Readers with one fault each, made by mending a head before the reading. */
const careless: Readonly<Record<string, (head: string) => string>> = {
  'overlooks a coding': (head) => head.replace(/transfer-encoding/i, 'x-coding'),
  'takes a space before a colon': (head) => head.replace(' :', ':'),
  'takes a sign before a length': (head) => head.replace(/(content-length: ?)\+/i, '$1'),
  'joins folded lines': (head) => head.replace(/\r\n[\t ]/, ' '),
  'takes a bare line feed for an end of line': (head) => head.replace(/([^\r])\n/, '$1\r\n'),
  'reads a tab behind a length': (head) => head.replace(/(content-length:[^\r]*)\t/i, '$1'),
  'overlooks an upgrade': (head) => head.replace(/upgrade/gi, 'x-grade'),
}

for (const [fault, mend] of Object.entries(careless))
  test(`a reader that ${fault} contradicts llhttp within 100,000 cases`, () => {
    const read = (head: string) => readUsualRequest(mend(head))
    const isFound = (turn: number) => {
      const random = seeded(turn)
      return typeof compareHead(anyHead(random), random, read) !== 'string'
    }
    let turn = 0
    while (turn < 100_000 && !isFound(turn)) turn++
    assert.ok(turn < 100_000)
  })

const validChunks = [
  '0\r\n\r\n',
  '5\r\nabcde\r\n0\r\n\r\n',
  'a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n',
  '0000000000005\r\nabcde\r\n00000\r\n\r\n',
  '5;a\r\nabcde\r\n0;b=c\r\n\r\n',
  '5;a=b;c="d e\\"f";g\r\nabcde\r\n0\r\n\r\n',
  '0\r\nA: b\r\nC: \xe9\r\nD:\r\n\r\n',
  '8\r\n\r\n0\r\n\r\n\n\r\n0\r\n\r\n',
]

test('every valid shape of a chunked body is accepted, and llhttp reads the same', () => {
  const [chunks] = replySubjects
  for (const body of validChunks)
    for (let turn = 0; turn < 32; turn++)
      assert.equal(compareReply(chunks!, body, seeded(turn)), 'accepted', JSON.stringify(body))
})

/** Lines of a size that llhttp refuses, or that have two meanings. */
const wrongSizes = [
  ...[
    '5 ',
    '5\t',
    '5;',
    '5 ;a',
    '5; a',
    '5;a =b',
    '5;a="',
    '5;\xe9',
    '5;a=(',
    '',
    ' 5',
    '+5',
    '0x5',
    '5,',
    '-1',
    'g',
  ],
  ...['5\n', '5\r', '10000000000000', ';a', '5\0', '5;a\0'],
]

const wrongTrailers = [
  ...['Content-Length: 5', 'Transfer-Encoding: chunked', 'Connection: close', 'Upgrade: a', 'Trailer: a'],
  ...['a', ' a: b', 'a : b', 'a: b\nc: d', 'a: \0'],
]

/** Bodies that are no chunks; earlier readers accepted blanks in the line of a size, and all names of trailers. */
const wrongChunks = [
  ...wrongSizes.map((line) => `${line}\r\nabcde\r\n0\r\n\r\n`),
  ...wrongTrailers.map((line) => `0\r\n${line}\r\n\r\n`),
  ...['abcdef\r\n', 'abcde\n', 'abcde0\r\n', 'abcde\r\r\n'].map((data) => `5\r\n${data}`),
]

test('no other shape of a chunked body is accepted', () => {
  for (const body of wrongChunks) {
    const reader = new ChunkReader(() => undefined)
    assert.equal(reader.read(Buffer.from(body, 'latin1')), -1, JSON.stringify(body))
  }
})

test('a tab behind a length or a coding is refused, and behind any other value it is a blank', () => {
  for (const line of ['Content-Length: 5\t', 'content-length: 5 \t ', 'Transfer-Encoding: chunked\t'])
    assert.equal(readFields(line, 0, true), undefined)
  assert.deepEqual(readFields('X:\ta\t', 0, true), ['x', 'a'])
  assert.deepEqual(readFields('Content-Length:\t5 ', 0, true), ['content-length', '5'])
})
