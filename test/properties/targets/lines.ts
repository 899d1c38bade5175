import assert from 'node:assert/strict'
import fc from 'fast-check'
import { type Overlong, repliedId } from '../../../src/protocol/overlong.ts'
import { LineReader } from '../../../src/upstreams/stdio/lines.ts'
import { cut, cuts } from '../arbitraries.ts'
import { target, type Target } from '../target.ts'

/** Bytes kept at either end of an overlong line; limits are not below this number. */
const END_BYTES = 512

const stream = fc
  .array(
    fc.oneof(
      fc.constantFrom('\n', '\r\n', '\r', 'é', '😀', '{"a":1}').map((text) => Buffer.from(text)),
      fc.uint8Array({ maxLength: 5 }),
      fc
        .tuple(fc.integer({ min: 300, max: 900 }), fc.constantFrom('x', 'é'))
        .map(([n, text]) => Buffer.from(text.repeat(n))),
    ),
    { maxLength: 12, size: 'max' },
  )
  .map((parts) => Buffer.concat(parts))

/** The lines of the whole stream at once. */
function reference(bytes: Buffer, limit: number): (string | Overlong)[] {
  const lines: (string | Overlong)[] = []
  const trimmed = (line: Buffer) => (line.at(-1) === 0x0d ? line.subarray(0, -1) : line).toString('utf8')
  for (let at = 0; at < bytes.length;) {
    const end = bytes.indexOf(0x0a, at)
    const line = bytes.subarray(at, end === -1 ? bytes.length : end)
    if (line.length <= limit) lines.push(trimmed(line))
    else {
      const head = line.subarray(0, END_BYTES).toString('utf8')
      lines.push({ head, tail: trimmed(line.subarray(-END_BYTES)) })
    }
    at = end === -1 ? bytes.length : end + 1
  }
  return lines
}

export const lineTargets: readonly Target[] = [
  target(
    'lines of a child process are the same wherever its output is cut, and of one over the limit both ends are kept',
    fc.tuple(stream, cuts, fc.integer({ min: END_BYTES, max: 2_000 })),
    ([bytes, sizes, limit]) => {
      const reader = new LineReader(() => limit)
      const lines = cut(bytes, sizes).flatMap((piece) => [...reader.feed(piece)])
      assert.deepEqual([...lines, ...reader.end()], reference(bytes, limit))
    },
  ),

  target(
    'the id of a reply that is too long is found at either end of it, and none is made up',
    fc.tuple(fc.nat(), fc.boolean(), fc.boolean(), fc.string({ maxLength: 20 })),
    ([id, before, isRequest, more]) => {
      const outcome = `"result":{"text":${JSON.stringify(more + '{"id":99}'.repeat(100))}}`
      const parts = before ? [`"id":${id}`, outcome] : [outcome, `"id":${id}`]
      const text = `{"jsonrpc":"2.0",${isRequest ? '"method":"x",' : ''}${parts.join(',')}}`
      const found = repliedId({ head: text.slice(0, END_BYTES), tail: text.slice(-END_BYTES) })
      assert.equal(found, isRequest ? undefined : id)
    },
  ),
]
