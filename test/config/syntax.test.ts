import assert from 'node:assert/strict'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { errorsOf, folder, loadGood } from './files.ts'

test('broken YAML is reported with its line and what is wrong', async (t) => {
  assert.deepEqual(await errorsOf(t, 'gateway:\n  listen: [a\nmcpServers: {}'), [
    '3:1  not valid YAML: Flow sequence in block collection must be sufficiently indented and end with a ]',
  ])
  assert.deepEqual(await errorsOf(t, 'gateway:\n\tlisten: a'), [
    '2:1  not valid YAML: Tabs are not allowed as indentation',
  ])
})

test('duplicate keys are errors, also where YAML would take them for different', async (t) => {
  assert.deepEqual(
    await errorsOf(
      t,
      'mcpServers:\n  a: { command: x }\n  a: { command: y }\n  1: { command: x }\n  "1": { command: y }',
    ),
    [
      '3:3  mcpServers.a  duplicate key "a"; the first is on line 2',
      '5:3  mcpServers.1  duplicate key "1"; the first is on line 4',
    ],
  )
})

test('a second document, a tag, an unknown anchor and a key that is no name are errors', async (t) => {
  assert.deepEqual(await errorsOf(t, 'gateway: {}\n---\ngateway: {}'), [
    '2:1  a second document begins here; a config is one document',
  ])
  assert.deepEqual(await errorsOf(t, 'gateway: !env X'), [
    '1:10  tags such as !secret have no meaning in a config',
  ])
  assert.deepEqual(await errorsOf(t, 'gateway: *base'), ['1:10  gateway  *base names no anchor above it'])
  assert.deepEqual(await errorsOf(t, 'mcpServers:\n  ? [a]\n  : {}'), [
    '2:5  mcpServers  expected a name as the key of a map, found a list',
  ])
  assert.deepEqual(await errorsOf(t, 'mcpServers:\n  null: { command: x }'), [
    '2:3  mcpServers  expected a name as the key of a map, found null; put it in quotes',
  ])
  assert.deepEqual(await errorsOf(t, 'mcpServers:\n  __proto__: { command: x }'), [
    '2:3  mcpServers  "__proto__" is not allowed as a key: JavaScript reserves it',
  ])
  assert.deepEqual(await errorsOf(t, 'gateway:\n  <<: text'), [
    '2:3  gateway  expected a map or a list of maps to merge with <<',
  ])
})

test('an empty file is an error, because most empty files are being written', async (t) => {
  assert.deepEqual(await errorsOf(t, ''), ['1:1  the file is empty'])
  assert.deepEqual(await errorsOf(t, '# nothing yet\n'), ['1:1  the file is empty'])
})

test('a bomb of aliases is refused', async (t) => {
  const levels = 'bcdefghij'
    .split('')
    .map((name, index) => `${name}: &${name} [${Array(9).fill(`*${'abcdefghij'[index]}`).join()}]`)
  const [error, ...more] = await errorsOf(t, `a: &a [x,x,x,x,x,x,x,x,x]\n${levels.join('\n')}`)
  assert.match(error ?? '', /holds more than 100000 values, all aliases expanded/)
  assert.deepEqual(more, [])
})

test('a bomb of long texts is refused, whether made by aliases or by variables', async (t) => {
  const long = 'x'.repeat(100_000)
  const [error, ...more] = await errorsOf(t, `x: &a "${long}"\ny: [${'*a,'.repeat(50)}*a]`)
  assert.match(
    error ?? '',
    /holds more than 4194304 characters, all aliases expanded and variables filled in/,
  )
  assert.deepEqual(more, [])
  const [filled = ''] = await errorsOf(t, `gateway: { environment: "${'${LONG}'.repeat(20)}" }`, {
    LONG: long,
  })
  assert.match(filled, /gateway\.environment {2}is longer than 1 MiB, all variables filled in/)
})

test('a loop of aliases ends', async (t) => {
  assert.match(
    (await errorsOf(t, 'gateway: &a\n  sessions: *a')).join('\n'),
    /^\d+:\d+ {2}nested deeper than 32 levels$/,
  )
  assert.match(
    (await errorsOf(t, 'gateway: &a [*a, *a]')).join('\n'),
    /^\d+:\d+ {2}nested deeper than 32 levels$/,
  )
  for (const merged of ['a: &a { <<: *a }', 'a: &a { <<: [*a, *a] }'])
    assert.match((await errorsOf(t, merged)).join('\n'), /^\d+:\d+ {2}nested deeper than 32 levels$/)
})

test('deep nesting ends in an error, before a parser could run out of its stack', async (t) => {
  for (const deep of ['['.repeat(50_000), '{a: '.repeat(50_000), '- '.repeat(50_000), '? '.repeat(50_000)])
    assert.match((await errorsOf(t, deep)).join(), /^1:\d+ {2}not valid YAML: nested too deeply$/)
})

test('a file that is missing, a folder, too large or not text says so', async (t) => {
  const path = await folder(t)
  await mkdir(join(path, 'folder'))
  await writeFile(join(path, 'large.yaml'), `gateway: {} #${'x'.repeat(1024 ** 2)}`)
  await writeFile(join(path, 'latin1.yaml'), Buffer.from([0x67, 0xe4, 0x3a]))
  const said = async (name: string) => {
    const loaded = await loadConfig(join(path, name), {})
    assert.ok(!loaded.ok)
    assert.deepEqual([...loaded.files.keys()], [join(path, name)])
    return loaded.errors.map(({ message, file }) => [file.slice(path.length + 1), message].join(': '))
  }
  assert.deepEqual(await said('none.yaml'), ['none.yaml: cannot be read: no such file'])
  assert.deepEqual(await said('folder'), ['folder: cannot be read: it is a folder'])
  assert.deepEqual(await said('large.yaml'), [
    'large.yaml: the file is larger than 1 MiB, the limit of a config',
  ])
  assert.deepEqual(await said('latin1.yaml'), ['latin1.yaml: cannot be read: it is not UTF-8 text'])
})

test('JSON may be indented with tabs, hold comments and end lists with a comma', async (t) => {
  const { config } = await loadGood(t, {
    'mcp.json':
      '\uFEFF{\n\t// servers\n\t"mcpServers": { /* one */ "a": {\n\t\t"command": "x", "args": ["http://h//x", "\\"//\\""],\n\t}, },\n}',
  })
  assert.deepEqual(config.mcpServers.a?.type === 'stdio' && config.mcpServers.a.args, ['http://h//x', '"//"'])
})

test('errors in JSON have their line too', async (t) => {
  assert.deepEqual(
    await errorsOf(t, {
      'mcp.json': '{\n  // a comment\n  "mcpServers": {\n    "a": { "comand": "x" }\n  }\n}',
    }),
    ['mcp.json:4:12  mcpServers.a.comand  unknown key "comand"; did you mean "command"?'],
  )
})
