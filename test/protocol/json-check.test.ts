import assert from 'node:assert/strict'
import { test } from 'node:test'
import { OUTCOME_KEY } from '../../src/chaos/accounting/accounting.ts'
import { ERROR_KEY } from '../../src/downstream/respond.ts'
import { IDEMPOTENCY_KEY } from '../../src/policies/idempotency.ts'
import { decidingMeta, MAX_DEPTH, readJson } from '../../src/protocol/json-check.ts'
import { MAX_MEMBERS } from '../../src/protocol/json-parse.ts'
import { locate } from '../../src/protocol/json-span.ts'
import { DEADLINE_KEY, PARTIAL_KEY } from '../../src/protocol/meta.ts'
import {
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  LOG_LEVEL_KEY,
  PROTOCOL_VERSION_KEY,
} from '../../src/protocol/versions.ts'
import { ARM_KEY, INTENT_KEY, STEP_KEY } from '../../src/protocol/task.ts'

const call = (params: string) => `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`

function codeOf(text: string): number | undefined {
  const read = readJson(text)
  return read.ok ? undefined : read.code
}

test('a checked text is read as JSON.parse reads the text', () => {
  for (const text of [
    'null',
    '7',
    '"a:b"',
    '[]',
    '{}',
    '{"":{"":""}}',
    '{"a:b":"c:d","e":"\\":\\"","f\\\\":1,"\\"":2}',
    '{"__proto__":{"__proto__":1},"constructor":2}',
    '{"1":1,"0":0,"-1":-1}',
    '[{"a":1},{"a":1},[{"a":[{"a":1}]}]]',
    `{"long":"${'x'.repeat(1_000)}\\\\","slashes":"${'\\\\'.repeat(40)}","quotes":"${'\\"'.repeat(40)}"}`,
    call('{"name":"é😀\\u2028","arguments":{"name":1,"Name":2,"NAME":3}}'),
  ]) {
    assert.deepEqual(readJson(text), { ok: true, value: JSON.parse(text) }, text)
  }
})

test('invalid JSON is a parse error, in chunks of any size', () => {
  const whole = call('{"name":"a\\"b","arguments":{"x":[1,{"y":"z"}]}}')
  for (let end = 0; end < whole.length; end++) assert.equal(codeOf(whole.slice(0, end)), -32700)
  for (const text of ['{"a":1}{"b":2}', "{'a':1}", '{"a":01}', '"\\', '"', '{"a'.repeat(50)])
    assert.equal(codeOf(text), -32700, text)
})

test('a duplicate key in an object is refused, anywhere and in any spelling', () => {
  for (const text of [
    '{"a":1,"a":1}',
    '{"a":1,"\\u0061":2}',
    '{"a":1 , "b":2, "a" : 3}',
    '{"__proto__":1,"__proto__":2}',
    '[{"x":{"y":[{"a":1,"a":2}]}}]',
    call('{"name":"safe","name":"admin_drop"}'),
    call('{"name":"safe","nam\\u0065":"admin_drop"}'),
    call('{"name":"safe","arguments":{"path":"/ok","path":"/etc"}}'),
    '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}',
    '{"id":1,"":0,"":0}',
    `{"a":"${'x'.repeat(100)}","b":1,"a":"${'\\"'.repeat(60)}"}`,
  ]) {
    assert.equal(codeOf(text), -32600, text)
  }
})

test('another spelling of a key that decides is refused, with the key or without it', () => {
  const spellings: readonly (readonly [string, string])[] = [
    ['name', 'Name'],
    ['name', 'NAME'],
    ['name', 'name\\u0000x'],
    ['taskId', 'taskid'],
    ['taskId', 'ta\\u017fkId'],
    ['taskId', 'tas\\u212aId'],
    ['taskId', 'task\\u0130d'],
    ['uri', 'ur\\u0131'],
    ['_meta', '_Meta'],
    ['arguments', 'argumentſ'],
  ]
  for (const [key, other] of spellings) {
    assert.equal(codeOf(call(`{"${other}":"x"}`)), -32600, other)
    assert.equal(codeOf(call(`{"${key}":"x","${other}":"y"}`)), -32600, other)
    assert.equal(codeOf(call(`{"${key}":"x"}`)), undefined, key)
  }
  for (const key of ['jsonrpc', 'id', 'method', 'params', 'result', 'error'])
    assert.equal(codeOf(`{"${key.toUpperCase()}":1}`), -32600, key)
  for (const key of decidingMeta) {
    const other = key.replace(/[a-z](?=[a-z-]*$)/, (letter) => letter.toUpperCase())
    assert.notEqual(other, key)
    assert.equal(codeOf(call(`{"_meta":{"${other}":"x"}}`)), -32600, other)
    assert.equal(codeOf(call(`{"_meta":{"${key}":"x"}}`)), undefined, key)
  }
  assert.equal(codeOf(call('{"ref":{"type":"ref/prompt","Name":"x"}}')), -32600)
  assert.equal(codeOf(`[${call('{"name":"a"}')},${call('{"Name":"a"}')}]`), -32600)
})

test('keys of _meta used by the gateway are among the decisive keys', () => {
  const known: readonly string[] = decidingMeta
  for (const key of [
    ARM_KEY,
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    DEADLINE_KEY,
    ERROR_KEY,
    IDEMPOTENCY_KEY,
    INTENT_KEY,
    LOG_LEVEL_KEY,
    OUTCOME_KEY,
    PARTIAL_KEY,
    PROTOCOL_VERSION_KEY,
    STEP_KEY,
    'progressToken',
    'traceparent',
  ])
    assert.ok(known.includes(key), key)
})

test('nesting is bounded before anything is read, also in what is no JSON', () => {
  const nested = (open: string, close: string, depth: number) => open.repeat(depth) + close.repeat(depth)
  assert.equal(codeOf(nested('[', ']', MAX_DEPTH)), undefined)
  assert.equal(codeOf(nested('[', ']', MAX_DEPTH + 1)), -32600)
  assert.equal(codeOf(`${'{"a":'.repeat(MAX_DEPTH)}1${'}'.repeat(MAX_DEPTH)}`), undefined)
  assert.equal(codeOf(`${'{"a":'.repeat(MAX_DEPTH + 1)}1${'}'.repeat(MAX_DEPTH + 1)}`), -32600)
  assert.equal(codeOf('['.repeat(2_000_000)), -32600)
  assert.equal(codeOf(JSON.stringify('['.repeat(1_000))), undefined)
})

test('a member is found where JSON.parse finds it, whatever its key is written like', () => {
  for (const key of ['name', 'nam\\u0065', '\\u006e\\u0061\\u006d\\u0065']) {
    const text = call(`{"x":{"name":"inner"},"${key}":"outer"}`)
    const span = locate(text, ['params', 'name'])
    assert.equal(span && text.slice(span.start, span.end), '"outer"')
  }
})

test('texts of all shapes are read as JSON.parse reads them, or refused because of their keys', () => {
  let seed = 7
  const draw = (below: number) => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0
    return (seed >>> 8) % below
  }
  const pick = <T>(from: readonly T[]): T => from[draw(from.length)] as T
  const strings = [
    '"a"',
    '"b"',
    '"\\u0061"',
    '"\\\\"',
    '"\\""',
    '":"',
    '"{"',
    `"${'y'.repeat(40)}\\""`,
    '"é"',
  ]
  let doubles = 0
  function value(depth: number): string {
    const kind = depth > 4 ? draw(3) : draw(5)
    if (kind === 0) return pick(strings)
    if (kind === 1) return pick(['1', '-1.5e3', 'true', 'null'])
    const space = pick(['', ' ', '\n\t'])
    if (kind === 2 || kind === 3) {
      const keys = Array.from({ length: draw(4) }, () => pick(strings))
      const names = keys.map((key) => JSON.parse(key) as string)
      if (new Set(names).size < names.length) doubles++
      return `{${space}${keys.map((key) => `${key}${space}:${space}${value(depth + 1)}`).join(`${space},`)}}`
    }
    return `[${Array.from({ length: draw(4) }, () => value(depth + 1)).join()}${space}]`
  }
  for (let round = 0; round < 20_000; round++) {
    doubles = 0
    const text = value(0)
    const expected = doubles > 0 ? -32600 : undefined
    assert.equal(codeOf(text), expected, text)
  }
})

test('the members of a body are bounded before parsing', () => {
  const of = (count: number) => `{${Array.from({ length: count }, (_, n) => `"key ${n}":1`).join()}}`
  assert.equal(readJson(of(MAX_MEMBERS)).ok, true)
  const read = readJson(of(MAX_MEMBERS + 1))
  assert.ok(!read.ok && read.value === undefined)
  assert.match(read.message, /more than 50000 members/)
})
