import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Config } from '../../src/config/schema/schema.ts'
import { loadGood } from './files.ts'

/** Returns the fields that matter of each server, whichever editor wrote the file. */
function essence(config: Config) {
  return Object.entries(config.mcpServers).map(([name, server]) =>
    server.type === 'stdio'
      ? [name, server.command, server.args, server.env]
      : [name, server.type, server.urls, server.headers],
  )
}

test('a file of Claude Desktop works unchanged', async (t) => {
  const file = `{
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/ada/Desktop"]
    },
    "github": { "command": "docker", "args": ["run", "-i"], "env": { "GITHUB_TOKEN": "t" } }
  }
}`
  const { config, warnings } = await loadGood(t, { 'claude_desktop_config.json': file })
  assert.deepEqual(warnings, [])
  assert.deepEqual(essence(config), [
    ['filesystem', 'npx', ['-y', '@modelcontextprotocol/server-filesystem', '/Users/ada/Desktop'], {}],
    ['github', 'docker', ['run', '-i'], { GITHUB_TOKEN: 't' }],
  ])
})

test('a project file of Claude Code works unchanged', async (t) => {
  const file = `{
  "mcpServers": {
    "api": { "type": "http", "url": "\${API_BASE_URL:-https://api.example.com}/mcp", "headers": { "Authorization": "Bearer \${API_KEY}" } },
    "events": { "type": "sse", "url": "https://mcp.example.com/sse" },
    "local": { "type": "stdio", "command": "\${HOME}/bin/server", "args": [], "env": {} }
  }
}`
  const { config, warnings } = await loadGood(t, { '.mcp.json': file }, { API_KEY: 'k', HOME: '/home/ada' })
  assert.deepEqual(warnings, [])
  assert.deepEqual(essence(config), [
    ['api', 'http', ['https://api.example.com/mcp'], { Authorization: 'Bearer k' }],
    ['events', 'sse', ['https://mcp.example.com/sse'], {}],
    ['local', '/home/ada/bin/server', [], {}],
  ])
})

test('a file of VS Code works, and says which of its keys mean nothing here', async (t) => {
  const file = `{
  // Comments and trailing commas are fine.
  "inputs": [
    { "type": "promptString", "id": "key", "description": "API key", "password": true },
  ],
  "servers": {
    "playwright": { "command": "npx", "args": ["-y", "@playwright/mcp@latest"], "gallery": true },
    "remote": { "type": "http", "url": "https://mcp.example.com/mcp", "headers": { "X-Key": "\${env:KEY}" }, "version": "1.0" },
  },
}`
  const { config, warnings } = await loadGood(t, { 'mcp.json': file }, { KEY: 'k' })
  assert.deepEqual(warnings, [
    'mcp.json:3:3  inputs  warning: asks a person, which a gateway cannot do: ignored; use environment variables',
    'mcp.json:7:81  servers.playwright.gallery  warning: is for a client; a gateway ignores it',
    'mcp.json:8:109  servers.remote.version  warning: is for a client; a gateway ignores it',
  ])
  assert.deepEqual(essence(config), [
    ['playwright', 'npx', ['-y', '@playwright/mcp@latest'], {}],
    ['remote', 'http', ['https://mcp.example.com/mcp'], { 'X-Key': 'k' }],
  ])
})

test('a file of Cursor works unchanged', async (t) => {
  const file = `{
  "mcpServers": {
    "local": { "command": "python", "args": ["server.py"], "env": { "API_KEY": "\${env:API_KEY}" } },
    "remote": { "url": "http://localhost:3000/mcp", "headers": { "API_KEY": "value" } },
    "off": { "command": "x", "disabled": true, "autoApprove": ["read"], "alwaysAllow": [] }
  }
}`
  const { config, warnings } = await loadGood(t, { 'mcp.json': file }, { API_KEY: 'k' })
  assert.deepEqual(essence(config).slice(0, 2), [
    ['local', 'python', ['server.py'], { API_KEY: 'k' }],
    ['remote', 'http', ['http://localhost:3000/mcp'], { API_KEY: 'value' }],
  ])
  assert.equal(config.mcpServers.off?.disabled, true)
  assert.deepEqual(
    warnings.map((line) => line.replace(/^\S+ {2}/, '')),
    [
      'mcpServers.off  warning: is disabled, and left out',
      'mcpServers.off.autoApprove  warning: is about asking a person before tool calls, which only clients do; a gateway ignores it',
      'mcpServers.off.alwaysAllow  warning: is about asking a person before tool calls, which only clients do; a gateway ignores it',
    ],
  )
  assert.deepEqual(
    Object.keys(config.mcpServers.off ?? {}).filter((key) => /approve|allow/i.test(key)),
    [],
  )
})
