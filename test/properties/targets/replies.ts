import { chosen, mutated } from '../../../src/chaos/faults/tool-result.ts'
import { apply } from '../../../src/chaos/operators/apply.ts'
import { driftNames, operatorOf, partialNames } from '../../../src/chaos/operators/index.ts'
import { withPartial } from '../../../src/downstream/respond.ts'
import type { Outcome, Partial } from '../../../src/mesh/call.ts'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'
import { parseExactly } from '../../../src/protocol/json-parse.ts'
import { isObject } from '../../../src/protocol/jsonrpc.ts'
import { PARTIAL_KEY } from '../../../src/protocol/meta.ts'
import {
  progressToCaller,
  rawAt,
  replyToCaller,
  toServer,
  withRawId,
} from '../../../src/protocol/renumber.ts'
import { newCall } from '../../support/caller.ts'
import { written, writtenObject } from '../arbitraries.ts'
import { target, type Target } from '../target.ts'

import fc from 'fast-check'
import assert from 'node:assert/strict'

const partial: fc.Arbitrary<Partial> = fc.record({
  source: fc.constantFrom('declared', 'detected', 'stale'),
  reason: fc.string(),
  notice: fc.boolean(),
})

/** The text of a response whose result has content of any kind. */
const reply = fc
  .tuple(writtenObject, fc.array(writtenObject, { maxLength: 3 }), writtenObject, fc.boolean())
  .map(([envelope, blocks, result, both]) => {
    const members = [`"content" : [ ${blocks.map(({ text }) => text).join(' ,')} ]`]
    if (both) members.push(`"structuredContent":${result.text}`)
    const whole = { text: envelope.text.trimEnd().slice(0, -1) }
    const comma = /\{\s*$/.test(whole.text) ? '' : ','
    return `${whole.text}${comma}"result":{${members.join()}}}`
  })

const rawId = fc.oneof(
  fc.integer().map(String),
  fc.constantFrom('1.0', '1e2', '"a"', '"\\u0061"', '"é😀"', '-0'),
)

/** A place for a token, in a request or in its progress. */
const request = (id: string, token: string | undefined) =>
  `{ "id" : ${id},"method":"tools/call","jsonrpc":"2.0","params":{"big":12345678901234567890${token === undefined ? '' : `,"_meta": {"progressToken":${token} }`}}}`

const toolResult = fc
  .tuple(fc.array(fc.oneof(written, writtenObject), { maxLength: 3 }), fc.option(writtenObject), fc.string())
  .map(([texts, structured, words]) => ({
    content: [
      ...texts.map(({ text }) => ({ type: 'text', text })),
      { type: 'text', text: words },
      { type: 'image', data: 'AA==' },
    ],
    ...(structured === null ? {} : { structuredContent: parseExactly(structured.text) }),
  }))

export const replyTargets: readonly Target[] = [
  target(
    'a reply that is flagged as partial says so once, in text and value alike, and keeps its content',
    fc.tuple(reply, partial),
    ([text, partial]) => {
      const value = parseExactly(text) as Record<string, unknown>
      const outcome: Outcome = {
        kind: 'answered',
        result: { text, value, status: 200 },
        verdict: 'unchecked',
        partial,
      }
      const flagged = withPartial(outcome)
      assert.deepEqual(parseExactly(flagged.text), flagged.value)
      if (partial.source === 'declared') return assert.equal(flagged.text, text)
      const before = value.result as { content: unknown[]; _meta?: unknown }
      const after = flagged.value.result as { content: unknown[]; _meta: Record<string, unknown> }
      assert.deepEqual(after._meta[PARTIAL_KEY], { source: partial.source, reason: partial.reason })
      const notice = { type: 'text', text: `[partial result] ${partial.reason}` }
      assert.deepEqual(after.content, partial.notice ? [...before.content, notice] : before.content)
    },
  ),

  target(
    'ids and tokens are put back as their owner wrote them, and every other byte stays',
    fc.tuple(rawId, fc.option(rawId, { nil: undefined }), fc.nat(), writtenObject),
    ([id, token, number, answer]) => {
      const text = request(id, token)
      const call = newCall({ method: 'tools/call', text })
      assert.equal(
        toServer(call, number),
        request(String(number), token === undefined ? undefined : String(number)),
      )
      const reply = { text: answer.text, value: parseExactly(answer.text) as Record<string, unknown> }
      const back = replyToCaller(call, reply)
      if (Object.hasOwn(reply.value, 'id')) assert.equal(rawAt(back.text, ['id']), id)
      else assert.equal(back.text, reply.text)
      assert.equal(withRawId(back.text, rawAt(reply.text, ['id'])), reply.text)

      const told = `{"method":"notifications/progress","params":{"progressToken": ${number}, "progress":1.0},"jsonrpc":"2.0"}`
      const progress = progressToCaller(call, {
        text: told,
        value: parseExactly(told) as Record<string, unknown>,
      })
      assert.equal(progress?.text, token && told.replace(` ${number},`, ` ${token},`))
      if (progress !== undefined) assert.deepEqual(parseExactly(progress.text), progress.value)
    },
  ),

  target(
    'whatever an operator does to a value is JSON, and the value itself stays',
    fc.tuple(written, fc.constantFrom(...driftNames, ...partialNames), fc.integer()),
    ([{ text }, op, seed]) => {
      const random = createKeyedRandom(seed)
      const config = operatorOf(op).schema.parse({ op })
      const value = parseExactly(text)
      const applied = apply(config, value, (purpose) => random('a call', purpose))
      assert.deepEqual(value, parseExactly(text))
      if (applied === 'not_applicable') return
      const json = JSON.stringify(applied.value)
      assert.equal(typeof json, 'string')
      assert.equal(JSON.stringify(parseExactly(json)), json)
    },
  ),

  target(
    'a result that drifts is a result still, with text that is JSON where it was',
    fc.tuple(toolResult, fc.constantFrom('both', 'structured_only', 'text_only'), fc.integer(), fc.boolean()),
    ([result, sync, seed, part]) => {
      const random = createKeyedRandom(seed)
      const draw = (purpose: string) => random('a call', purpose)
      const before = structuredClone(result)
      const config = chosen(result, part ? partialNames : driftNames, sync, draw)
      const done = config && mutated(result, config, sync, draw)
      assert.deepEqual(result, before)
      if (done === undefined) return
      const { content } = parseExactly(JSON.stringify(done.result)) as { content: unknown }
      assert.ok(Array.isArray(content) && content.every(isObject))
      if (part) return
      assert.equal(content.length, before.content.length)
      for (const [at, block] of before.content.entries()) {
        if (!('text' in block) || !isJson(block.text)) continue
        assert.ok(
          isJson((content[at] as { text: string }).text),
          `block ${at} of ${JSON.stringify(done.done)}`,
        )
      }
    },
  ),
]

function isJson(text: string): boolean {
  try {
    parseExactly(text)
    return true
  } catch {
    return false
  }
}
