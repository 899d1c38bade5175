import assert from 'node:assert/strict'
import { test } from 'node:test'
import { wrongIn as judge } from '../../../src/registry/health/probe.ts'

const wrongIn = (message: Parameters<typeof judge>[0], tool: Parameters<typeof judge>[1]) =>
  judge(message, tool, (said) => said.replace('s3cret', '[redacted]'))

const text = (words: string, more: object = {}) => ({
  result: { content: [{ type: 'text', text: words }], ...more },
})
const asked = (expect?: string | Record<string, unknown>) => ({
  name: 'ask',
  arguments: {},
  ...(expect !== undefined && { expect }),
})

test('an answer is right when it holds the expected text or values', () => {
  assert.equal(wrongIn(text('the answer is 42'), asked('42')), undefined)
  assert.equal(wrongIn(text('anything'), asked()), undefined)
  const structured = text('', { structuredContent: { a: { b: [1, 2], c: 3 }, more: true } })
  assert.equal(wrongIn(structured, asked({ a: { b: [1, 2] } })), undefined)
})

test('another text, other values, an error of the tool or of the protocol, and no result are wrong answers', () => {
  const wrong = [
    [text('41'), asked('42'), 'tool ask did not answer with "42"'],
    [text('', { isError: true }), asked(), 'tool ask failed: '],
    [text('bad s3cret', { isError: true }), asked(), 'tool ask failed: bad [redacted]'],
    [
      { error: { code: -32602, message: 'Unknown tool' } },
      asked(),
      'tool ask answered with an error: Unknown tool',
    ],
    [{}, asked(), 'tool ask answered without a result'],
    [
      text('', { structuredContent: { a: 1, b: 2 } }),
      asked({ a: 1, b: 3 }),
      'tool ask answered with other values of structuredContent than expected: b',
    ],
    [
      text('42'),
      asked({ a: 1 }),
      'tool ask answered with other values of structuredContent than expected: a',
    ],
  ] as const
  for (const [message, tool, words] of wrong)
    assert.deepEqual(wrongIn(message, tool), { reason: 'wrong_answer', message: words })
})
