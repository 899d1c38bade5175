import { parseExactly } from '../../../src/protocol/json-parse.ts'
import assert from 'node:assert/strict'
import fc from 'fast-check'
import {
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  LOG_LEVEL_KEY,
  PROTOCOL_VERSION_KEY,
  withoutEnvelope,
} from '../../../src/protocol/versions.ts'
import {
  elements,
  type JsonPath,
  locate,
  locateAll,
  members,
  prependMember,
  replaceAt,
} from '../../../src/protocol/json-span.ts'
import { MAX_DEPTH, readJson } from '../../../src/protocol/json-check.ts'
import { isObject, parseJson, readMessage, readMessages } from '../../../src/protocol/jsonrpc.ts'
import { withMeta, withEntry } from '../../../src/protocol/meta.ts'
import { damaged, written, writtenObject } from '../arbitraries.ts'
import { target, type Target } from '../target.ts'

const step = fc.oneof(
  fc.constantFrom('id', 'params', '_meta', '__proto__', 'nowhere', ''),
  fc.nat({ max: 4 }),
)
const path: fc.Arbitrary<JsonPath> = fc.array(step, { maxLength: 4 })

/** Values that survive a round trip through JSON. */
const plain = fc
  .jsonValue({ maxDepth: 2, noUnicodeString: false })
  .map((value) => parseExactly(JSON.stringify(value)))

/** Returns the value at a path of a parsed value; undefined if absent (no JSON value is undefined). */
function valueAt(value: unknown, path: JsonPath): unknown {
  let found = value
  for (const step of path) {
    const fits = typeof step === 'number' ? Array.isArray(found) : isObject(found)
    if (!fits || !Object.hasOwn(found as object, step)) return undefined
    found = (found as Record<string | number, unknown>)[step]
  }
  return found
}

/** Returns a copy with another value at an existing path. */
function settingAt(value: unknown, [step, ...more]: JsonPath, put: unknown): unknown {
  if (step === undefined) return put
  if (Array.isArray(value))
    return value.map((item: unknown, at): unknown => (at === step ? settingAt(item, more, put) : item))
  const entries = Object.entries(value as Record<string, unknown>).map(([key, item]) =>
    key === step ? [key, settingAt(item, more, put)] : [key, item],
  )
  return Object.fromEntries(entries)
}

/** A part of JSON-RPC, often of a wrong type. */
const messageParts = fc
  .record(
    {
      jsonrpc: fc.constantFrom<unknown>('2.0', '1.0', 2),
      id: fc.constantFrom<unknown>(1, 'a', null, 1.5, {}, [], true),
      method: fc.constantFrom<unknown>('ping', 'tools/call', 1, null, {}),
      params: fc.constantFrom<unknown>({}, [], null, { name: { toString: 1 } }, 'x'),
      result: fc.constantFrom<unknown>({}, null, []),
      error: fc.constantFrom<unknown>({}, null, { code: 1 }),
    },
    { requiredKeys: [] },
  )
  .map((value) => JSON.stringify(value))

const envelopeKeys = [PROTOCOL_VERSION_KEY, CLIENT_INFO_KEY, CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY]

/** Whether a value, or a member of a batch, has a top-level key that spells `id` in other letters. */
const hasVariantOfId = (value: unknown): boolean =>
  (Array.isArray(value) ? (value as unknown[]) : [value]).some(
    (message) =>
      isObject(message) && Object.keys(message).some((key) => key !== 'id' && /^id(\0|$)/i.test(key)),
  )

export const jsonTargets: readonly Target[] = [
  target(
    'a body is read if each key stands once in its object, and is no other spelling of one that decides',
    written,
    ({ text, hasDuplicates }) => {
      const read = readJson(text)
      const value = parseExactly(text)
      if (read.ok) assert.deepEqual(read.value, value)
      assert.equal(read.ok, !hasDuplicates && !hasVariantOfId(value))
    },
  ),

  target('what is no JSON is not read, whatever it is', damaged, (text) => {
    const value = parseJson(text)
    if (value === undefined) assert.equal(readJson(text).ok, false)
  }),

  target(
    'a body is read up to a depth, however that comes about',
    fc.array(fc.constantFrom('[', '{"a":'), {
      minLength: MAX_DEPTH - 2,
      maxLength: MAX_DEPTH + 2,
      size: 'max',
    }),
    (opened) => {
      const closed = opened.toReversed().map((open) => (open === '[' ? ']' : '}'))
      const text = `${opened.join('')}"]["${closed.join('')}`
      assert.equal(readJson(text).ok, opened.length <= MAX_DEPTH)
    },
  ),

  target('every value of a JSON text is found exactly where it stands', written, ({ text, values }) => {
    const parsed = parseExactly(text)
    for (const { path, start, end } of values) {
      assert.deepEqual(locate(text, path), { start, end })
      assert.deepEqual(parseExactly(text.slice(start, end)), valueAt(parsed, path))
    }
  }),

  target(
    'what is found in a JSON text is what JSON.parse has there, and nothing is found where it has nothing',
    fc.tuple(written, fc.array(path, { maxLength: 6 })),
    ([{ text, values }, paths]) => {
      const parsed = parseExactly(text)
      const all = [...paths, ...values.map((value) => value.path)]
      const together = locateAll(text, all)
      for (const [index, wanted] of all.entries()) {
        const span = locate(text, wanted)
        assert.deepEqual(together[index], span)
        const found = span && parseExactly(text.slice(span.start, span.end))
        assert.deepEqual(found, valueAt(parsed, wanted))
      }
    },
  ),

  target(
    'a replacement changes the one value, and no other byte',
    fc.tuple(written, fc.nat(), plain, path),
    ([{ text, values }, pick, put, anywhere]) => {
      const { path, start, end } = values[pick % values.length]!
      const replaced = replaceAt(text, path, put)
      assert.equal(replaced, text.slice(0, start) + JSON.stringify(put) + text.slice(end))
      assert.deepEqual(parseExactly(replaced), settingAt(parseExactly(text), path, put))
      if (valueAt(parseExactly(text), anywhere) === undefined)
        assert.equal(replaceAt(text, anywhere, put), text)
    },
  ),

  target('members and elements are those of JSON.parse, in its order', written, ({ text, values }) => {
    const parsed = parseExactly(text)
    for (const { path, start } of values) {
      const value = valueAt(parsed, path)
      const textOf = (span: { start: number; end: number }) => parseExactly(text.slice(span.start, span.end))
      if (Array.isArray(value)) assert.deepEqual([...elements(text, start)].map(textOf), value)
      else if (isObject(value)) {
        const entries = [...members(text, start)].map((member) => [member.key, textOf(member)] as const)
        assert.deepEqual(Object.fromEntries(entries), value)
      }
    }
  }),

  target(
    'a member that is put first comes before all others, which stay as they are',
    fc.tuple(writtenObject, fc.constant('a new "key"'), plain),
    ([{ text }, key, put]) => {
      const longer = prependMember(text, key, JSON.stringify(put))
      assert.deepEqual(parseExactly(longer), { [key]: put, ...(parseExactly(text) as object) })
    },
  ),

  target(
    'an entry of _meta is the same in the text and in the value of a message',
    fc.tuple(
      writtenObject,
      fc.constantFrom('params' as const, 'result' as const),
      fc.constantFrom('k', '_meta', '__proto__', 'id'),
      plain,
    ),
    ([{ text }, root, key, put]) => {
      const before = parseExactly(text) as Record<string, unknown>
      const after = withMeta({ text, value: before }, root, key, put)
      assert.deepEqual(parseExactly(after.text), after.value)
      assert.deepEqual(valueAt(after.value, [root, '_meta', key]), put)
      assert.deepEqual(before, parseExactly(text), 'the message itself stays as it was')
    },
  ),

  target(
    'an object with one more entry is the object with one more entry',
    fc.tuple(writtenObject, fc.constantFrom('id', 'params', '__proto__', 'constructor', '0'), plain),
    ([{ text }, key, put]) => {
      const object = parseExactly(text) as Record<string, unknown>
      const expected = { ...object, [key]: put }
      const more = withEntry(object, key, put)
      assert.deepEqual(more, expected)
      assert.equal(Object.getPrototypeOf(more), Object.prototype)
    },
  ),

  target(
    'a request loses what only the modern era knows of it, and nothing else',
    fc.tuple(writtenObject, fc.subarray(envelopeKeys), plain),
    ([{ text }, keys, put]) => {
      const message = keys.reduce((message, key) => withMeta(message, 'params', key, put), {
        text,
        value: parseExactly(text) as Record<string, unknown>,
      })
      const expected = structuredClone(message.value) as { params?: { _meta?: Record<string, unknown> } }
      const meta = isObject(expected.params) ? expected.params._meta : undefined
      if (isObject(meta)) for (const key of envelopeKeys) delete meta[key]
      assert.deepEqual(parseExactly(withoutEnvelope(message.text)), expected)
    },
  ),

  target(
    'any body is read or refused: no text whatever throws, and each message has its own text',
    fc.oneof(
      damaged,
      messageParts,
      written.map(({ text }) => text),
      fc.array(messageParts, { maxLength: 4 }).map((parts) => ` [${parts.join(' , ')} ]\n`),
    ),
    (text) => {
      const value = parseJson(text)
      for (const message of readMessages(text, value) ?? [])
        assert.deepEqual(parseExactly(message.text), message.value)
      const single = readMessage(text)
      if (single !== undefined) assert.deepEqual(single.value, value)
    },
  ),
]
