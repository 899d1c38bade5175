import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { fixtureCommand, type RunningFixture, startFixture } from '../support/fixture.ts'
import { cleanUp, Gateway, newFolder } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

const fixtures = fileURLToPath(new URL('../../../test/fixtures/clients/', import.meta.url))

const running: Partial<Record<'http' | 'sse', RunningFixture>> = {}

before(async () => {
  running.http = await startFixture('contract', 'http')
  running.sse = await startFixture('contract', 'sse')
})

after(async () => {
  await cleanUp()
  await running.http?.stop()
  await running.sse?.stop()
})

/** Rewrites a client's config file to use servers on this machine. */
async function withRealServers(name: string): Promise<string> {
  const { command, args } = fixtureCommand('contract', 'stdio')
  const written = await readFile(join(fixtures, name), 'utf8')
  return written
    .replaceAll('"npx"', JSON.stringify(command))
    .replaceAll('["-y", "notes-mcp-server"]', JSON.stringify(args))
    .replaceAll('https://mcp.example.com/mcp', running.http?.url ?? '')
    .replaceAll('https://mcp.example.com/sse', running.sse?.url ?? '')
    .replaceAll('${input:search-key}', '${SEARCH_KEY}')
}

/** The servers in each client's file, with their transports. */
const clients: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'claude-desktop.json': { 'My-Notes-local': 'stdio' },
  'claude-code.json': { notes: 'stdio', search: 'streamable-http', events: 'sse' },
  'cursor.json': { notes: 'stdio', events: 'sse' },
  'vscode.json': { 'microsoft-notes-mcp': 'stdio', search: 'streamable-http' },
  'windsurf.json': { notes: 'stdio', search: 'streamable-http' },
  'cline.json': { 'github-com-example-notes': 'stdio', search: 'streamable-http', events: 'sse' },
  'gemini-cli.json': { notes: 'stdio', search: 'streamable-http', events: 'sse' },
  'zed.json': { notes: 'stdio', search: 'streamable-http' },
}

for (const [name, servers] of Object.entries(clients)) {
  test(`a gateway starts with ${name}, and all of its servers come up`, async () => {
    const folder = await newFolder()
    await writeFile(join(folder, name), await withRealServers(name))
    await writeFile(join(folder, 'notes.env'), await readFile(join(fixtures, 'notes.env')))
    const env = { SEARCH_KEY: 's3cret' }
    const gateway = await Gateway.start({ servers: { file: name } }, { folder, env })
    await gateway.waitFor('up', ...Object.keys(servers))
    const { body } =
      await gateway.admin<{ name: string; transport: { transport?: string }[] }[]>('/admin/servers')
    assert.deepEqual(
      Object.fromEntries(body.map((server) => [server.name, server.transport[0]?.transport])),
      servers,
    )
    const client = await RawClient.open(gateway.mcp())
    const { result } = await client.request('tools/list')
    const offered = (result as { tools: { name: string }[] }).tools.map((tool) => tool.name.split('__')[0])
    assert.deepEqual(new Set(offered), new Set(Object.keys(servers)))
    await gateway.program.kill()
  })
}

test('a renamed server is shown with its original name', async () => {
  const { command, args } = fixtureCommand('contract', 'stdio')
  const gateway = await Gateway.start({ servers: { 'io.github.x/y': { command, args } } })
  await gateway.waitFor('up', 'io-github-x-y')
  const { body } = await gateway.admin<{ name: string; writtenName?: string }[]>('/admin/servers')
  assert.deepEqual(
    body.map(({ name, writtenName }) => [name, writtenName]),
    [['io-github-x-y', 'io.github.x/y']],
  )
  assert.ok(
    gateway.log.some(({ msg }) =>
      /servers?\["io\.github\.x\/y"\].* is known as "io-github-x-y"/i.test(String(msg)),
    ),
  )
})
