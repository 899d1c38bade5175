import assert from 'node:assert/strict'
import fc from 'fast-check'
import { encodeEvent, SseDecoder, SseOverflow, type SseEvent } from '../../../src/protocol/sse.ts'
import { cut, cuts, wellFormed } from '../arbitraries.ts'
import { target, type Target } from '../target.ts'

const UNBOUNDED = 1_000_000

/** Pieces of a stream, mostly meaningful to an SSE reader. */
const fragment = fc.oneof(
  fc.constantFrom('\r', '\n', '\r\n', '\n\n', '\r\r', '\ufeff', ':', ': ', ' ', '\0', 'é', '😀', '\u2028'),
  fc.constantFrom(
    'data',
    'data:',
    'data: ',
    'event: x',
    'event:',
    'id: 7',
    'id:',
    'id',
    'retry: 10',
    'retry:',
  ),
  fc.constantFrom(
    'data: a\n\n',
    'data: b\r\n',
    'data: c\r\n\r\n',
    'id: \u0001\n',
    'id: a\0b\n',
    'retry: 1x\n',
    'retry: 99999999999\n',
    'Data: x\n',
  ),
  fc.string({ maxLength: 4 }),
)

const bytes = fc
  .array(
    fc.oneof(
      fragment.map((text) => Buffer.from(text)),
      fc.uint8Array({ maxLength: 3 }),
    ),
    {
      maxLength: 24,
      size: 'max',
    },
  )
  .map((parts) => Buffer.concat(parts))

/**
 * The WHATWG HTML standard (9.2.6) word by word, on the whole stream at once. Two intended differences: an event
 * without data counts if it carries any field, and an id that no header can carry counts as none.
 */
function reference(stream: Buffer): SseEvent[] {
  const events: SseEvent[] = []
  let text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(stream)
  if (text.startsWith('\ufeff')) text = text.slice(1)
  const lines = text.split(/\r\n|\n|\r/)
  // Text after the last line end is no line.
  lines.pop()
  let data = ''
  let type = ''
  let lastId: string | undefined
  let retryMs: number | undefined
  let carried = false
  for (const line of lines) {
    if (line === '') {
      if (carried)
        events.push({
          type: type === '' ? 'message' : type,
          data: data.endsWith('\n') ? data.slice(0, -1) : data,
          id: lastId,
          retryMs,
        })
      data = type = ''
      retryMs = undefined
      carried = false
      continue
    }
    if (line.startsWith(':')) continue
    const [, field = '', value = ''] = /^([^:]*)(?::\x20?([^]*))?$/.exec(line) ?? []
    if (field === 'event') type = value
    else if (field === 'data') data += `${value}\n`
    else if (field === 'id') {
      if (!value.includes('\0'))
        lastId = [...value].some((c) => (c < ' ' && c !== '\t') || c === '\x7f') ? undefined : value
    } else if (field === 'retry') {
      if (/^[0-9]+$/.test(value)) retryMs = Math.min(Number(value), 2 ** 31 - 1)
    } else continue
    carried = true
  }
  return events
}

function decode(pieces: readonly Buffer[], limit = UNBOUNDED): SseEvent[] {
  const events: SseEvent[] = []
  const decoder = new SseDecoder(limit, (event) => events.push(event))
  for (const piece of pieces) decoder.feed(piece)
  return events
}

export const sseTargets: readonly Target[] = [
  target(
    'a stream of events is read as the standard says, wherever it is cut',
    fc.tuple(bytes, cuts),
    ([stream, sizes]) => assert.deepEqual(decode(cut(stream, sizes)), reference(stream)),
  ),

  target(
    'what was written as events is read as those events with spaces for line breaks, wherever it is cut',
    fc.tuple(
      fc.array(
        fc.record({
          data: fc.array(fragment, { maxLength: 4 }).map((parts) => wellFormed(parts.join(''))),
          id: fc.option(fc.constantFrom('1-1', 'a b', 'é'), { nil: undefined }),
        }),
        { maxLength: 5 },
      ),
      cuts,
      fc.boolean(),
    ),
    ([events, sizes, marked]) => {
      const text = events.map(({ data, id }) => encodeEvent(data, id)).join('')
      const got = decode(cut(Buffer.from((marked ? '\ufeff' : '') + text), sizes))
      assert.deepEqual(
        got.map(({ data }) => data),
        events.map(({ data }) => data.replace(/[\r\n]/g, ' ')),
      )
      let last: string | undefined
      for (const [index, { id }] of events.entries()) assert.equal(got[index]?.id, (last = id ?? last))
    },
  ),

  target(
    'an event over the limit is refused, and none under it is, wherever it is cut',
    fc.tuple(
      fc.array(fc.nat({ max: 60 }), { minLength: 1, maxLength: 4 }),
      fc.integer({ min: 4, max: 150 }),
      cuts,
    ),
    ([lengths, limit, sizes]) => {
      const lines = lengths.map((length) => `data: ${'x'.repeat(length)}`)
      const size = lines.reduce((sum, line) => sum + line.length, 0)
      const data = lines.map((line) => line.slice(6)).join('\n')
      const event = Buffer.from(`${lines.join('\n')}\n\n`)
      const read = () => decode(cut(event, sizes), limit)
      if (size > limit) assert.throws(read, SseOverflow)
      else assert.equal(read()[0]?.data, data)

      const told: string[] = []
      const decoder = new SseDecoder(
        limit,
        (one) => told.push(one.data),
        (_, { head, tail }) => told.push(head.slice(0, -1), tail.slice(1)),
      )
      for (const piece of cut(Buffer.concat([event, Buffer.from('data\n\n')]), sizes)) decoder.feed(piece)
      assert.deepEqual(told, size > limit ? [data, data, ''] : [data, ''])
    },
  ),
]
