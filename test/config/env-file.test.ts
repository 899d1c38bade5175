import assert from 'node:assert/strict'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { parseEnvFile } from '../../src/config/files/env-file.ts'
import { loadConfig } from '../../src/config/load.ts'
import { redact } from '../../src/config/secrets/redact.ts'
import { errorsOf, folder, load, loadGood } from './files.ts'

const read = (text: string) => Object.fromEntries(parseEnvFile(text).variables)

test('lines of KEY=value are read, with comments, quotes and export', () => {
  assert.deepEqual(
    read(
      [
        '\uFEFF# a comment',
        '',
        'PLAIN=a b # not this',
        'export EXPORTED = x#y ',
        `SINGLE='a # "b" \\n $C'`,
        'DOUBLE="a # \\"b\\"\\n$C" # not this',
        'EMPTY=',
        'URL=https://h/?a=b#c',
        'MULTI="one',
        'two"',
        'PLAIN=again',
      ].join('\r\n'),
    ),
    {
      PLAIN: 'again',
      EXPORTED: 'x#y',
      SINGLE: 'a # "b" \\n $C',
      DOUBLE: 'a # "b"\n$C',
      EMPTY: '',
      URL: 'https://h/?a=b#c',
      MULTI: 'one\ntwo',
    },
  )
})

test('the time for a file grows linearly: each value is found in place', () => {
  // If each value copied the rest of the file, these would take minutes and hit the timeout of the tests.
  const count = 150_000
  const text = Array.from({ length: count }, (_, n) => `K${n}="${n}"\n`).join('')
  const { variables, problems } = parseEnvFile(text.slice(0, 1024 ** 2).replace(/[^\n]*$/, ''))
  assert.deepEqual(problems, [])
  assert.equal(variables.get('K0'), '0')
  assert.ok(variables.size > 60_000)
})

test('text after a value of several lines is read as well', () => {
  assert.deepEqual(read(`A="1\n2\n\n3" # note\nB='x\ny'\nC=z`), { A: '1\n2\n\n3', B: 'x\ny', C: 'z' })
})

test('a line that is no assignment, and a quote without an end, are problems that hold nothing of the text', () => {
  assert.deepEqual(parseEnvFile('A=1\ns3cret\n=x\nB="s3cret').problems, [
    { line: 2, message: 'expected KEY=value, a comment, or nothing' },
    { line: 3, message: 'expected KEY=value, a comment, or nothing' },
    { line: 4, message: 'the " that begins here has no end' },
  ])
})

const envOf = (config: { mcpServers: Record<string, { type: string; env?: unknown }> }) =>
  config.mcpServers.a?.env

test('an envFile is relative to the config; env wins, and all values are secret', async (t) => {
  const { config, files } = await loadGood(t, {
    'main.yaml': 'mcpServers: { a: { command: x, envFile: .env, env: { B: own, C: own } } }',
    '.env': 'A=from-file\nB=from-file\n',
  })
  assert.deepEqual(envOf(config), { A: 'from-file', B: 'own', C: 'own' })
  assert.deepEqual(
    files.map((file) => file.split('/').at(-1)),
    ['main.yaml', '.env'],
    'a change of the file reloads the config',
  )
  assert.doesNotMatch(JSON.stringify(redact(config)), /from-file/)
})

test('values of an envFile are secret everywhere', async (t) => {
  const { config } = await loadGood(t, {
    'main.yaml': 'mcpServers: { a: { command: x, envFile: .env, args: [from-file] } }',
    '.env': 'A=from-file',
  })
  assert.doesNotMatch(JSON.stringify(redact(config)), /from-file/)
})

test('an envFile that is missing, or wrong, is an error that names it', async (t) => {
  assert.deepEqual(await errorsOf(t, 'mcpServers:\n  a: { command: x, envFile: nowhere/.env }'), [
    '2:29  mcpServers.a.envFile  nowhere/.env cannot be read: no such file',
  ])
  const { lines } = await load(t, {
    'main.yaml': 'mcpServers: { a: { command: x, envFile: .env } }',
    '.env': 'A=1\ns3cret\n',
  })
  assert.deepEqual(lines, ['.env:2:1  mcpServers.a.envFile  expected KEY=value, a comment, or nothing'])
})

test('the envFile of a server that is disabled is not looked for', async (t) => {
  await loadGood(t, 'mcpServers: { a: { command: x, envFile: none, disabled: true }, b: { command: x } }')
})

test('places go by the names that VS Code and Cursor gave them, and are no secrets', async (t) => {
  const { loaded, path } = await load(
    t,
    'mcpServers: { a: { command: x, args: ["${workspaceFolder}", "${workspaceFolderBasename}", "${userHome}", "${cwd}", "a${/}b${pathSeparator}c"] } }',
    { HOME: '/home/ada' },
  )
  assert.ok(loaded.ok)
  const { a } = loaded.config.mcpServers
  const args = [path, path.split('/').at(-1), '/home/ada', process.cwd(), 'a/b/c']
  assert.deepEqual(a?.type === 'stdio' && a.args, args)
  assert.match(JSON.stringify(redact(loaded.config)), new RegExp(path))
})

test('relative paths of a server are relative to the config, or to the project that has it in the folder of a client', async (t) => {
  const path = await folder(t)
  await mkdir(join(path, '.vscode'))
  const text = JSON.stringify({
    servers: {
      a: { command: './run.sh', cwd: 'work', envFile: 'my.env' },
      b: { command: 'npx', cwd: '/abs' },
      c: { command: '../up', args: ['./as-it-is'] },
    },
  })
  await writeFile(join(path, '.vscode', 'mcp.json'), text)
  await writeFile(join(path, 'mcp.json'), text)
  await writeFile(join(path, 'my.env'), 'A=1')
  for (const file of ['.vscode/mcp.json', 'mcp.json']) {
    const loaded = await loadConfig(join(path, file), {})
    assert.ok(loaded.ok, JSON.stringify(loaded))
    const [a, b, c] = Object.values(loaded.config.mcpServers).map((server) => {
      assert.equal(server.type, 'stdio')
      return server.type === 'stdio' ? [server.command, server.cwd, server.args, server.env] : []
    })
    assert.deepEqual(a, [join(path, 'run.sh'), join(path, 'work'), [], { A: '1' }], file)
    assert.deepEqual(b, ['npx', '/abs', [], {}])
    assert.deepEqual(c, [join(path, '../up'), undefined, ['./as-it-is'], {}])
  }
})
