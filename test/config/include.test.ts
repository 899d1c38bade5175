import assert from 'node:assert/strict'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { errorsOf, folder, load, loadGood } from './files.ts'

test('any block may live in a file of its own', async (t) => {
  const { config, files } = await loadGood(
    t,
    {
      'main.yaml':
        'gateway: { file: gw.json }\nmcpServers: { file: "${WHO}.yaml" }\npolicies: { file: policies.yaml }',
      'gw.json': '{ "maxInFlight": 7 }',
      'servers.yaml': 'a: { command: "${CMD}" }',
      'policies.yaml': 'defaults: { deadline: { total: 9s } }',
    },
    { WHO: 'servers', CMD: 'run' },
  )
  assert.equal(config.gateway.maxInFlight, 7)
  assert.equal(config.mcpServers.a?.type === 'stdio' && config.mcpServers.a.command, 'run')
  assert.equal(config.policies.defaults.deadline && config.policies.defaults.deadline.total, 9_000)
  assert.deepEqual(
    files.map((file) => file.split('/').at(-1)),
    ['main.yaml', 'gw.json', 'servers.yaml', 'policies.yaml'],
  )
})

test("a block's own file may name the block, as an editor's file does", async (t) => {
  const { config } = await loadGood(t, {
    'main.yaml': 'mcpServers: { file: mcp.json }\npolicies: { file: p.yaml }',
    'mcp.json': '{ "inputs": [], "servers": { "a": { "command": "x" } } }',
    'p.yaml': 'policies: { defaults: { attemptTimeout: false } }',
  })
  assert.deepEqual(Object.keys(config.mcpServers), ['a'])
  assert.equal(config.policies.defaults.attemptTimeout, false)
})

test('an included file is relative to the one that names it, or absolute', async (t) => {
  const path = await folder(t, { 'abs.yaml': 'a: { command: x }' })
  await mkdir(join(path, 'etc/parts'), { recursive: true })
  await writeFile(
    join(path, 'etc/main.yaml'),
    `mcpServers: { file: ${path}/abs.yaml }\ngateway: { file: parts/gw.yaml }`,
  )
  await writeFile(join(path, 'etc/parts/gw.yaml'), 'drain: 1s')
  const loaded = await loadConfig(join(path, 'etc/main.yaml'), {})
  assert.ok(loaded.ok)
  assert.equal(loaded.config.gateway.drain, 1_000)
  assert.deepEqual(Object.keys(loaded.config.mcpServers), ['a'])
})

test('errors name the included file, and come file by file from top to bottom', async (t) => {
  assert.deepEqual(
    await errorsOf(t, {
      'main.yaml':
        'mcpServers: { file: servers.yaml }\ngateway: { lisen: x }\npolicies: { file: policies.yaml }',
      'servers.yaml': '\na__b: { command: x }\nb:\n  comand: x\n  url: "${NOPE}"',
      'policies.yaml': '- no',
    }),
    [
      'main.yaml:2:12  gateway.lisen  unknown key "lisen"; did you mean "listen"?',
      'servers.yaml:4:3  mcpServers.b.comand  unknown key "comand"; did you mean "command"?',
      'servers.yaml:5:8  mcpServers.b.url  environment variable NOPE is not set; set it, or write ${NOPE:-default}',
      'policies.yaml:1:1  policies  expected a map, found a list',
    ],
  )
})

test('an unreadable file is reported where named, and is watched', async (t) => {
  const { loaded, lines, path } = await load(
    t,
    'gateway: {}\npolicies:\n  file: none.yaml\nmcpServers: { a: 1 }',
  )
  assert.deepEqual(lines, [
    'main.yaml:3:9  policies.file  none.yaml cannot be read: no such file',
    'main.yaml:4:18  mcpServers.a  expected a map, found a number',
  ])
  assert.deepEqual([...loaded.files.keys()], [join(path, 'main.yaml'), join(path, 'none.yaml')])
})

test('a broken or empty included file is reported in its own lines', async (t) => {
  assert.deepEqual(
    await errorsOf(t, {
      'main.yaml': 'policies: { file: p.yaml }\nmcpServers: { file: s.yaml }',
      'p.yaml': '',
      's.yaml': 'a:\n\tb: 1',
    }),
    ['p.yaml:1:1  the file is empty', 's.yaml:2:1  not valid YAML: Tabs are not allowed as indentation'],
  )
})

test('a block that is a file has no keys beside it, and its file none beside the block', async (t) => {
  assert.deepEqual(
    await errorsOf(t, {
      'main.yaml':
        'policies: { file: p.yaml, defaults: {} }\nmcpServers: { file: mcp.json }\ngateway: { file: "" }',
      'mcp.json': '{ "mcpServers": {}, "gateway": {} }',
    }),
    [
      'main.yaml:1:27  policies.defaults  a block with "file" has no other keys',
      'main.yaml:3:18  gateway.file  expected the path of a file, found ""',
      'mcp.json:1:21  gateway  only "mcpServers" is read from this file',
    ],
  )
})

test('a file cannot include itself without end', async (t) => {
  assert.deepEqual(await errorsOf(t, 'policies: { file: main.yaml }'), [
    '1:13  policies.file  unknown key "file"; allowed are defaults, overrides, sets',
  ])
})
