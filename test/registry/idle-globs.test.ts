import assert from 'node:assert/strict'
import { test } from 'node:test'
import { rememberInterpolated } from '../../src/config/secrets/redact.ts'
import type { Match } from '../../src/mesh/match.ts'
import type { CatalogEntry } from '../../src/registry/catalog.ts'
import { warnOfIdleGlobs } from '../../src/registry/log-lines.ts'
import type { ServerState } from '../../src/registry/known-server.ts'
import { recordedLog } from '../support/log.ts'

function server(name: string, state: ServerState, ...tools: string[]) {
  return { name, state, entries: () => tools.map((key) => ({ key }) as CatalogEntry) }
}

function warnings(servers: readonly ReturnType<typeof server>[], ...matches: Match[]) {
  const { log, lines } = recordedLog()
  const overrides = matches.map((match) => ({ match }))
  warnOfIdleGlobs(log, {
    config: { policies: { overrides } },
    servers: new Map(servers.map((one) => [one.name, one])),
  })
  return lines.map(({ msg, path, servers: asked }) => [msg, path, asked])
}

test('an override for a tool that no server has is named by its place', () => {
  const servers = [server('search', 'up', 'query_docs'), server('mail', 'up', 'send')]
  const matches = [{ tool: 'query_*' }, { tool: 'qury_*' }, { server: 'mail', tool: 'query_*' }]
  assert.deepEqual(warnings(servers, ...matches), [
    ['"qury_*" matches no tool', 'policies.overrides[1].match.tool', ['search', 'mail']],
    ['"query_*" matches no tool', 'policies.overrides[2].match.tool', ['mail']],
  ])
})

test('a server that is down may have the tool, so nothing is said, and nothing about entries without a tool', () => {
  const servers = [server('search', 'down'), server('mail', 'up', 'send')]
  const matches = [{ tool: 'query' }, { server: 'search', tool: 'x' }, { server: 'gone', tool: 'x' }, {}]
  assert.deepEqual(warnings(servers, ...matches), [])
})

test('a tool that a variable names stands in no log', () => {
  const match = { tool: 'from_a_variable' }
  rememberInterpolated(match, new Set(['from_a_variable']))
  assert.deepEqual(warnings([server('mail', 'up', 'send')], match), [
    ['"[redacted]" matches no tool', 'policies.overrides[0].match.tool', ['mail']],
  ])
})
