import assert from 'node:assert/strict'
import { test } from 'node:test'
import { jsonMistake } from '../../src/config/files/json-mistakes.ts'
import { errorsOf, loadGood } from './files.ts'

/** Invalid JSON texts, the position of the mistake, and the message. */
const mistakes: readonly (readonly [text: string, at: string, why: RegExp])[] = [
  ['{"a": 1,, "b": 2}', '1:9', /^found a second comma in a row$/],
  ["{'a': 1}", '1:2', /^expected a key in double quotes, found a single quote; JSON writes "…"$/],
  ['{"a": \'s3cret\'}', '1:7', /^expected a value, found a single quote/],
  ['{"a": “s3cret”}', '1:7', /^expected a value, found a typographic quote/],
  ['{a: 1}', '1:2', /^expected a key in double quotes, found a word without quotes$/],
  ['{"a": s3cret}', '1:7', /^expected a value, found a word without quotes$/],
  ['{"a": True}', '1:7', /^found True; JSON writes true, in small letters$/],
  ['{"a": None}', '1:7', /^found None; JSON writes null$/],
  ['{"a": 01}', '1:7', /^found a number in a form that JSON does not have$/],
  ['{"a": }', '1:7', /^a value is missing before "}"$/],
  ['{"a" 1}', '1:6', /^expected ":" after the key, found a number$/],
  [
    '{"a": {"b": 1}\n "c": 2}',
    '2:2',
    /found a string: the comma after the last entry of the object is missing$/,
  ],
  ['{"a": [1 2]}', '1:10', /^expected "," or "]", found a number$/],
  ['{"a": [1}', '1:9', /^expected "," or "]", found "}"$/],
  ['{\n "a": {', '2:8', /^the file ends, and the { of line 2 has no }$/],
  ['{"a": "s3cret', '1:7', /^the string that begins here has no " at its end$/],
  ['{"a": "s3cret\n"}', '1:7', /^the string that begins here has no " at its end$/],
  [
    '{"a": "C:\\Users"}',
    '1:10',
    /^found a lone \\ in a string; write \\\\ for a backslash, or \/ in a path$/,
  ],
  ['{"a": "x\ty"}', '1:9', /^found a tab or a control character/],
  ['{"a": 1} {"b": 2}', '1:10', /^found "{" after the end of the object$/],
  ['{"a": 1 /* s3cret }', '1:9', /^a comment that begins with \/\* has no \*\/$/],
  ['{"a": 1 # s3cret\n}', '1:9', /found a "#"; comments are written \/\/ or \/\* \*\/$/],
  ['[,1]', '1:2', /^a value is missing before ","$/],
]

test('mistakes in JSON are called what they are, and hold nothing of the text', () => {
  for (const [text, at, why] of mistakes) {
    const { offset = -1, message = '' } = jsonMistake(text) ?? {}
    const before = text.slice(0, offset).split('\n')
    assert.equal(`${before.length}:${(before.at(-1) ?? '').length + 1}`, at, `${text} ${message}`)
    assert.match(message, why, text)
    assert.doesNotMatch(message, /s3cret/)
  }
})

test('valid JSON is accepted, with comments and a comma after the last entry', () => {
  for (const text of [
    '{}',
    '[]',
    '\uFEFF { "a": [1, -2.5e+3, true, false, null, "\\u00e9\\/\\n"], }',
    '// one\n{ /* two */ "a": { "b": [ ], }, // three\n }\n// four',
  ])
    assert.equal(jsonMistake(text), undefined, text)
})

test('a file that is called JSON is judged as JSON', async (t) => {
  assert.deepEqual(await errorsOf(t, { 'mcp.json': '{\n  "mcpServers": {\n    \'a\': {}\n  }\n}' }), [
    'mcp.json:3:5  not valid JSON: expected a key in double quotes, found a single quote; JSON writes "…"',
  ])
  assert.deepEqual(await errorsOf(t, { 'mcp.json': 'mcpServers: {}' }), [
    'mcp.json:1:1  not valid JSON: expected a value, found a word without quotes',
  ])
})

test('a file that begins like JSON is judged as JSON, unless valid as YAML', async (t) => {
  assert.deepEqual(
    await errorsOf(t, '{\n  "mcpServers": {\n    "a": { "command": "x" "args": [] }\n  }\n}'),
    [
      '3:27  not valid JSON: expected "," or "}", found a string: the comma after the last entry of the object is missing',
    ],
  )
  const { config } = await loadGood(t, "{ mcpServers: { a: { url: http://h//x, headers: { 'X-A': b } } } }")
  assert.deepEqual(config.mcpServers.a?.type === 'http' && config.mcpServers.a.urls, ['http://h//x'])
  await loadGood(t, '// pasted\n{\n\t"mcpServers": { "a": { "url": "http://h//x" }, },\n}')
})
