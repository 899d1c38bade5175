import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'
import { parse } from 'yaml'
import { importConfigs } from '../../src/commands/run/import.ts'
import { loadConfig } from '../../src/config/load.ts'
import { folder } from '../config/files.ts'

const fixtures = fileURLToPath(new URL('../../../test/fixtures/clients/', import.meta.url))

/** Runs `breakwater import` in a folder with these files; an argument that begins with `@` names one of the files. */
async function run(t: TestContext, files: Record<string, string>, ...args: string[]) {
  const path = await folder(t, files)
  const stdout: string[] = []
  const stderr: string[] = []
  const code = await importConfigs(
    args.map((arg) => (arg.startsWith('@') ? join(path, arg.slice(1)) : arg)),
    { stdout: (line) => stdout.push(line), stderr: (line) => stderr.push(line) },
    { HOME: '/home/ada' },
  )
  const text = stdout.join('\n')
  const said = stderr.map((line) => line.replaceAll(`${path}/`, ''))
  const { mcpServers = {} } = (parse(text) ?? {}) as { mcpServers?: Record<string, Record<string, unknown>> }
  return { code, text, said, servers: mcpServers, path }
}

/** An imported config begins with its environment. */
const HEAD =
  'gateway:\n  # What this gateway serves: dev, development, test, staging, sandbox, qa or local. Elsewhere faults are never armed.\n  environment: development\n'

const inFile = (mcpServers: object) => ({ 'a.json': JSON.stringify({ mcpServers }) })

/** Returns the variables that the command asks the user to set. */
const toSet = (said: readonly string[]) =>
  said.filter((line) => line.startsWith('  ')).map((line) => line.trim())

test('secrets become variables, and only names of variables are shown', async (t) => {
  const { code, text, said, servers } = await run(
    t,
    inFile({
      shop: {
        command: 'npx',
        args: ['-y', 'shop', '--api-key', 'arg-secret', '--port', '8080'],
        env: {
          SHOP_TOKEN: 'env-secret',
          MODE: 'fast',
          KEYLIKE: 'a1B2c3D4e5F6g7H8',
          ASKED: '${input:my-key}',
        },
      },
      search: {
        url: 'https://ada:url-secret@h/mcp?api_key=query-secret&page=1',
        headers: { Authorization: 'Bearer bearer-secret', 'X-Api-Key': 'header-secret', 'X-Mode': 'fast' },
      },
      plain: { url: 'https://h/mcp', headers: { authorization: 'raw-secret', 'X-Key': '${env:MINE}' } },
    }),
    '@a.json',
  )
  assert.equal(code, 0)
  assert.doesNotMatch(text + said.join('\n'), /-secret|a1B2c3/)
  assert.deepEqual(servers, {
    shop: {
      command: 'npx',
      args: ['-y', 'shop', '--api-key', '${SHOP_ARG_4}', '--port', '8080'],
      env: { SHOP_TOKEN: '${SHOP_TOKEN}', MODE: 'fast', KEYLIKE: '${KEYLIKE}', ASKED: '${MY_KEY}' },
    },
    search: {
      url: 'https://${SEARCH_LOGIN}@h/mcp?api_key=${SEARCH_API_KEY}&page=1',
      headers: {
        Authorization: 'Bearer ${SEARCH_TOKEN}',
        'X-Api-Key': '${SEARCH_X_API_KEY}',
        'X-Mode': 'fast',
      },
    },
    plain: { url: 'https://h/mcp', headers: { authorization: '${PLAIN_TOKEN}', 'X-Key': '${env:MINE}' } },
  })
  assert.deepEqual(toSet(said), [
    'SHOP_ARG_4',
    'SHOP_TOKEN',
    'KEYLIKE',
    'MY_KEY',
    'SEARCH_LOGIN',
    'SEARCH_API_KEY',
    'SEARCH_TOKEN',
    'SEARCH_X_API_KEY',
    'PLAIN_TOKEN',
    'MINE',
  ])
})

test('text beside a reference stays as secret as without the reference, and a reference stays', async (t) => {
  const { text, servers } = await run(
    t,
    inFile({
      mixed: {
        command: 'npx',
        args: ['pg', 'postgres://app:a-secret@${DB_HOST}/x', '--api-key=${PREFIX}-a-secret'],
        env: {
          DATABASE_URL: 'postgres://app:a-secret@${DB_HOST}/x',
          API_TOKEN: 'a-secret${X}',
          PASSWORD: '$${a-secret}',
          DEFAULT_TOKEN: '${TOKEN:-a-secret}',
        },
      },
      remote: {
        url: 'https://${HOST}/mcp?api_key=a-secret',
        headers: { Authorization: 'Bearer ${STAGE}-a-secret' },
      },
      filled: {
        url: 'https://me:${PASSWORD}@${HOST}/mcp?api_key=${KEY}',
        headers: { Authorization: 'Bearer ${TOKEN}' },
      },
    }),
    '@a.json',
  )
  assert.doesNotMatch(text, /-secret/)
  assert.deepEqual(servers, {
    mixed: {
      command: 'npx',
      args: ['pg', 'postgres://${MIXED_ARG_2}@${DB_HOST}/x', '--api-key=${MIXED_ARG_3}'],
      env: {
        DATABASE_URL: '${DATABASE_URL}',
        API_TOKEN: '${API_TOKEN}',
        PASSWORD: '${PASSWORD}',
        DEFAULT_TOKEN: '${DEFAULT_TOKEN}',
      },
    },
    remote: {
      url: 'https://${HOST}/mcp?api_key=${REMOTE_API_KEY}',
      headers: { Authorization: 'Bearer ${REMOTE_TOKEN}' },
    },
    filled: {
      url: 'https://me:${PASSWORD}@${HOST}/mcp?api_key=${KEY}',
      headers: { Authorization: 'Bearer ${TOKEN}' },
    },
  })
})

test('two servers with other values under one name get variables of their own', async (t) => {
  const { servers } = await run(
    t,
    inFile({
      a: { command: 'x', env: { API_KEY: 'one' } },
      b: { command: 'x', env: { API_KEY: 'two' } },
      c: { command: 'x', env: { API_KEY: 'one' } },
    }),
    '@a.json',
  )
  assert.deepEqual(
    Object.values(servers).map(({ env }) => env),
    [{ API_KEY: '${API_KEY}' }, { API_KEY: '${B_API_KEY}' }, { API_KEY: '${API_KEY}' }],
  )
})

test('keys of clients become keys of Breakwater, and paths hold wherever the config goes', async (t) => {
  const { servers, said, path } = await run(
    t,
    inFile({
      'My Notes': {
        transportType: 'stdio',
        command: './run.sh',
        args: ['${workspaceFolder}/x', '${userHome}'],
        cwd: 'work',
        envFile: '.env',
        timeout: 60,
        alwaysAllow: ['x'],
        disabled: false,
        disabledTools: ['y'],
      },
      search: {
        httpUrl: 'https://h/mcp',
        headers: { 'X-Mode': '$MODE' },
        includeTools: ['z'],
        enabled: false,
      },
    }),
    '@a.json',
  )
  assert.deepEqual(servers, {
    'My-Notes': {
      command: join(path, 'run.sh'),
      args: [`${path}/x`, '/home/ada'],
      cwd: join(path, 'work'),
      envFile: join(path, '.env'),
      timeout: '60s',
      tools: { exclude: ['y'] },
    },
    search: {
      url: 'https://h/mcp',
      headers: { 'X-Mode': '${MODE}' },
      tools: { include: ['z'] },
      disabled: true,
    },
  })
  assert.deepEqual(said, [
    'a.json: "My Notes" is called "My-Notes"',
    'a.json: left out, because only clients use it: alwaysAllow',
    'Set these environment variables before you start the gateway:',
    '  MODE',
  ])
})

const files = ['claude-desktop', 'claude-code', 'vscode', 'windsurf', 'cline', 'gemini-cli', 'zed', 'cursor']

for (const name of files) {
  test(`the config imported from ${name}.json is usable, and gives no warning about a client`, async (t) => {
    const { code, text, said, path } = await run(t, {}, join(fixtures, `${name}.json`))
    assert.equal(code, 0, said.join('\n'))
    assert.doesNotMatch(text, /t0ken/)
    await writeFile(join(path, 'out.yaml'), text)
    const env = Object.fromEntries(toSet(said).map((variable) => [variable, 'value']))
    const loaded = await loadConfig(join(path, 'out.yaml'), env)
    assert.ok(loaded.ok, JSON.stringify(loaded))
    assert.deepEqual(
      loaded.warnings.filter(({ message }) => !message.startsWith('is disabled')),
      [],
    )
  })
}

test('several files become one config; different servers under one name are an error that names both', async (t) => {
  const two = {
    'a.json': '{ "mcpServers": { "x y": { "command": "one" }, "same": { "command": "s" } } }',
    'b.json':
      '{ "servers": { "x y": { "command": "two" }, "same": { "command": "s" }, "z": { "url": "http://h" } } }',
  }
  const clash = await run(t, two, '@a.json', '@b.json')
  assert.equal(clash.code, 1)
  assert.equal(clash.text, '')
  assert.deepEqual(clash.said, [
    '"x y" of a.json and "x y" of b.json would both be called "x-y", but differ; rename one of the two',
  ])
  const merged = await run(
    t,
    { ...two, 'a.json': '{ "mcpServers": { "same": { "command": "s" } } }' },
    '@a.json',
    '@b.json',
  )
  assert.deepEqual(Object.keys(merged.servers), ['same', 'x-y', 'z'])
})

test('a file is written where --out says, and never over another without --force', async (t) => {
  const first = await run(
    t,
    { ...inFile({ a: { command: 'x' } }), 'out.yaml': 'mine' },
    '@a.json',
    '--out',
    '@out.yaml',
  )
  assert.equal(first.code, 1)
  assert.deepEqual(first.said, ['breakwater: out.yaml exists already; --force overwrites it'])
  assert.equal(await readFile(join(first.path, 'out.yaml'), 'utf8'), 'mine')
  const forced = await run(
    t,
    { ...inFile({ a: { command: 'x' } }), 'out.yaml': 'mine' },
    '@a.json',
    '--force',
    '--out',
    '@out.yaml',
  )
  assert.equal(forced.code, 0)
  assert.deepEqual(forced.said, ['breakwater: wrote out.yaml with 1 server'])
  assert.equal(forced.text, '')
  assert.equal(
    await readFile(join(forced.path, 'out.yaml'), 'utf8'),
    `${HEAD}mcpServers:\n  a:\n    command: x\n`,
  )
})

test('a file that cannot be read, is no JSON, or holds no servers says so', async (t) => {
  const bad = {
    'bad.json': '{ "mcpServers": { "a": { "command": \'x\' } } }',
    'none.json': '{ "theme": "dark" }',
  }
  const { code, said } = await run(t, bad, '@bad.json', '@none.json', '@missing.json')
  assert.equal(code, 1)
  assert.deepEqual(said, [
    'bad.json:1:37  not valid JSON: expected a value, found a single quote; JSON writes "…"',
    'none.json: found no servers, and no package or remote of a registry',
    'missing.json cannot be read: no such file',
  ])
  assert.equal((await run(t, {})).code, 2)
})

test('a config of Breakwater is not imported: it would lose its environment and policies', async (t) => {
  const own = { 'own.yaml': 'gateway: { environment: production }\nmcpServers: { a: { command: x } }' }
  const { code, text, said } = await run(t, own, '@own.yaml')
  assert.deepEqual(
    [code, text, said],
    [1, '', ['own.yaml: is already a config of Breakwater, so no import is needed']],
  )
})

const weather = {
  name: 'io.github.acme/weather',
  description: 'Tells the weather.',
  version: '1.2.0',
}
const registry = async (t: TestContext, rest: object) => {
  const imported = await run(t, { 'server.json': JSON.stringify({ ...weather, ...rest }) }, '@server.json')
  return { ...imported, entry: imported.servers['io-github-acme-weather'] }
}

test('a package of npm, with its arguments and variables', async (t) => {
  const { entry, said } = await registry(t, {
    packages: [
      {
        registryType: 'npm',
        identifier: '@acme/weather',
        version: '1.2.0',
        transport: { type: 'stdio' },
        packageArguments: [
          { type: 'named', name: '--units', default: 'metric' },
          { type: 'named', name: '--quiet' },
          { type: 'positional', valueHint: 'city', isRequired: true },
          { type: 'positional', valueHint: 'optional' },
        ],
        environmentVariables: [
          { name: 'WEATHER_KEY', isRequired: true, isSecret: true },
          { name: 'WEATHER_MODE', default: 'fast' },
          { name: 'WEATHER_PROXY' },
        ],
      },
    ],
  })
  assert.deepEqual(entry, {
    command: 'npx',
    args: ['-y', '@acme/weather@1.2.0', '--units', 'metric', '--quiet', '${CITY}'],
    env: { WEATHER_KEY: '${WEATHER_KEY}', WEATHER_MODE: 'fast' },
  })
  assert.deepEqual(toSet(said), ['CITY', 'WEATHER_KEY'])
})

test('packages of pypi and oci, also as earlier versions of the schema wrote them', async (t) => {
  const pypi = { registry_type: 'pypi', identifier: 'weather-mcp', version: '0.5.0', runtime_hint: 'uvx' }
  assert.deepEqual((await registry(t, { packages: [pypi] })).entry, {
    command: 'uvx',
    args: ['weather-mcp@0.5.0'],
  })
  const oci = {
    registryType: 'oci',
    identifier: 'ghcr.io/acme/weather:1.2.0',
    runtimeArguments: [
      {
        type: 'named',
        name: '--mount',
        value: 'type=bind,src={source},dst=/data',
        variables: { source: { isRequired: true } },
      },
    ],
    environmentVariables: [{ name: 'WEATHER_KEY', isSecret: true }],
  }
  assert.deepEqual((await registry(t, { packages: [{ registryType: 'nuget' }, oci] })).entry, {
    command: 'docker',
    args: [
      'run',
      '-i',
      '--rm',
      '--mount',
      'type=bind,src=${SOURCE},dst=/data',
      '-e',
      'WEATHER_KEY',
      'ghcr.io/acme/weather:1.2.0',
    ],
    env: { WEATHER_KEY: '${WEATHER_KEY}' },
  })
})

test('a remote goes before packages, and Streamable HTTP before HTTP+SSE', async (t) => {
  const { entry, said } = await registry(t, {
    packages: [{ registryType: 'npm', identifier: 'weather', version: '1' }],
    remotes: [
      { type: 'sse', url: 'https://h/sse' },
      {
        type: 'streamable-http',
        url: 'https://{region}.h/mcp',
        variables: { region: { default: 'eu' } },
        headers: [
          { name: 'Authorization', value: 'Bearer {token}', variables: { token: { isSecret: true } } },
        ],
      },
    ],
  })
  assert.deepEqual(entry, {
    type: 'http',
    url: 'https://eu.h/mcp',
    headers: { Authorization: 'Bearer ${WEATHER_TOKEN}' },
  })
  assert.match(said.join('\n'), /its remote is used\n.*it is also available in 2 other ways/)
})

test('an entry of a registry cannot ask for a variable of this machine, anywhere in the entry', async (t) => {
  const stolen = '${SHOP_SECRET}'
  const parts = [
    {
      remotes: [
        { type: 'streamable-http', url: `https://h/${stolen}/mcp`, headers: [{ name: 'X', value: stolen }] },
      ],
    },
    {
      packages: [
        {
          registryType: 'npm',
          identifier: `x${stolen}`,
          packageArguments: [{ type: 'named', name: `--${stolen}`, default: stolen }],
          environmentVariables: [{ name: 'MODE', default: `\${env:HOME} ${stolen}` }],
        },
      ],
    },
  ]
  for (const part of parts) {
    const { entry, said, text, path } = await registry(t, part)
    assert.deepEqual(toSet(said), [])
    await writeFile(join(path, 'out.yaml'), text)
    const loaded = await loadConfig(join(path, 'out.yaml'), { SHOP_SECRET: 's3cret', HOME: '/home/ada' })
    assert.doesNotMatch(JSON.stringify(loaded), /s3cret|home\/ada/)
    assert.match(JSON.stringify(entry), /\$\$\{SHOP_SECRET\}/)
  }
})

test('a registry server does not get the variable for the secret of another server', async (t) => {
  const files = {
    ...inFile({ shop: { command: 'x', env: { API_KEY: 's3cret' } } }),
    'server.json': JSON.stringify({
      ...weather,
      packages: [
        { registryType: 'npm', identifier: 'w', environmentVariables: [{ name: 'API_KEY', isSecret: true }] },
      ],
    }),
  }
  for (const args of [
    ['@a.json', '@server.json'],
    ['@server.json', '@a.json'],
  ]) {
    const { servers, said } = await run(t, files, ...args)
    const values = Object.values(servers).map(({ env }) => (env as Record<string, string>).API_KEY)
    assert.equal(new Set(values).size, 2, JSON.stringify(values))
    assert.equal(toSet(said).length, 2)
  }
})

test('a key that all objects inherit is a key like others', async (t) => {
  const { servers } = await run(t, inFile({ a: { command: 'x', constructor: 1, toString: 2 } }), '@a.json')
  assert.deepEqual(Object.keys(servers.a ?? {}), ['command', 'constructor', 'toString'])
})

test('a registry server without a supported package is refused with its package types', async (t) => {
  const { code, said } = await registry(t, {
    packages: [{ registryType: 'mcpb', identifier: 'https://h/x.mcpb' }],
  })
  assert.equal(code, 1)
  assert.deepEqual(said, [
    'server.json: has no remote, and no npm, pypi or oci package with stdio transport (found: mcpb)',
  ])
})
