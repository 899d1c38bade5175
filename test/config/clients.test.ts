import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import { readdir } from 'node:fs/promises'
import { test } from 'node:test'
import { formatIssue } from '../../src/config/issues/issues.ts'
import { loadConfig } from '../../src/config/load.ts'

const folder = fileURLToPath(new URL('../../../test/fixtures/clients/', import.meta.url))
const env = { SEARCH_KEY: 's3cret', HOME: '/home/ada' }

/** For each client's file: the messages about the file and the servers that the file defines. */
const clients: Readonly<Record<string, { said: readonly string[]; servers?: readonly string[] }>> = {
  'claude-desktop.json': {
    said: [
      '3:5  mcpServers["My Notes (local)"]  warning: is known as "My-Notes-local": at /mcp/My-Notes-local, and as My-Notes-local__… in the names of its tools',
      '9:3  globalShortcut  warning: is a setting of a client, and ignored; so are preferences',
    ],
    servers: ['My-Notes-local stdio'],
  },
  'claude-code.json': {
    said: [
      '13:18  mcpServers.search.timeout  warning: is read as 600000ms; write the value with its unit, to be sure',
      '14:7  mcpServers.search.oauth  warning: is ignored: a gateway signs in nowhere; put a token into "headers"',
    ],
    servers: ['notes stdio', 'search http 600000', 'events sse'],
  },
  'cursor.json': {
    said: [
      '13:7  mcpServers.events.auth  warning: is ignored: a gateway signs in nowhere; put a token into "headers"',
    ],
    servers: ['notes stdio', 'events auto'],
  },
  'vscode.json': {
    said: [
      '19:37  servers.search.headers.Authorization  ${input:search-key} asks a person, which a gateway cannot do: write ${SEARCH_KEY} and set this environment variable',
    ],
  },
  'windsurf.json': {
    said: ['10:5  mcpServers.off  warning: is disabled, and left out'],
    servers: ['notes stdio', 'search auto', 'off auto'],
  },
  'cline.json': {
    said: [
      '3:5  mcpServers["github.com/example/notes"]  warning: is known as "github-com-example-notes": at /mcp/github-com-example-notes, and as github-com-example-notes__… in the names of its tools',
      '6:18  mcpServers["github.com/example/notes"].timeout  warning: is read as 60s; write the value with its unit, to be sure (and likewise in 1 more)',
      '8:7  mcpServers["github.com/example/notes"].autoApprove  warning: is about asking a person before tool calls, which only clients do; a gateway ignores it (here and in 1 more)',
      '18:74  mcpServers.events.alwaysAllow  warning: is about asking a person before tool calls, which only clients do; a gateway ignores it',
    ],
    servers: ['github-com-example-notes stdio 60000', 'search http 1800000', 'events auto'],
  },
  'gemini-cli.json': {
    said: [
      '2:3  theme  warning: is a setting of a client, and ignored; so are selectedAuthType, telemetry',
      '5:12  mcp.allowed  warning: is for a client; a gateway ignores it, and runs all servers except those "disabled"',
      '10:31  mcpServers.notes.env.NOTES_TOKEN  warning: holds a $NAME, which is not expanded; write ${NAME} for a variable',
      '11:18  mcpServers.notes.timeout  warning: is read as 30000ms; write the value with its unit, to be sure (and likewise in 1 more)',
      '12:7  mcpServers.notes.trust  warning: is about asking a person before tool calls, which only clients do; a gateway ignores it ("trusted" believes the annotations of tools)',
    ],
    servers: ['notes stdio 30000', 'search auto 5000', 'events auto'],
  },
  'zed.json': {
    said: [
      '3:3  theme  warning: is a setting of a client, and ignored; so are ui_font_size, telemetry, agent',
      '9:7  context_servers.notes.source  warning: is for a client; a gateway ignores it',
      '16:5  context_servers.off  warning: is disabled, and left out',
    ],
    servers: ['notes stdio', 'search auto', 'off stdio'],
  },
}

test('every file of a client is in the table', async () => {
  const files = (await readdir(folder)).filter((name) => name.endsWith('.json'))
  assert.deepEqual(files.toSorted(), Object.keys(clients).toSorted())
})

for (const [file, { said, servers }] of Object.entries(clients)) {
  test(`${file} is usable, or names in a line what to do`, async () => {
    const loaded = await loadConfig(`${folder}${file}`, env)
    const issues = loaded.ok ? loaded.warnings : loaded.errors
    assert.deepEqual(
      issues.map((issue) => formatIssue(issue).replace(`${folder}${file}:`, '')),
      said,
    )
    assert.equal(loaded.ok, servers !== undefined)
    if (!loaded.ok) return
    const found = Object.entries(loaded.config.mcpServers).map(([name, server]) => {
      const type = 'detect' in server && server.detect ? 'auto' : server.type
      return [name, type, ...(server.timeout === undefined ? [] : [server.timeout])].join(' ')
    })
    assert.deepEqual(found, servers)
  })
}
