import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { validate } from '../../src/commands/run/validate.ts'

/**
 * A gateway's control port with these servers; each server's command equals its name, and a server without tools is
 * down. `excluded`: tools that the config leaves out. Resolves to its address.
 */
async function controlPort(
  t: TestContext,
  servers: Readonly<Record<string, readonly string[]>>,
  excluded: readonly string[] = [],
): Promise<string> {
  const run = Object.keys(servers).map((name) => [name, { type: 'stdio', command: name, args: [] }] as const)
  const answers: Record<string, unknown> = {
    '/admin/config': { config: { mcpServers: Object.fromEntries(run) } },
    '/admin/servers': Object.entries(servers).map(([name, tools]) => ({
      name,
      state: tools.length > 0 ? 'up' : 'down',
    })),
  }
  for (const [name, tools] of Object.entries(servers))
    answers[`/admin/servers/${name}`] = { name, tools: tools.map((key) => ({ key })), excluded }
  const server = createServer((request, response) => {
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify(answers[request.url ?? ''] ?? {}))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

const lines = [
  'mcpServers: { files: { command: files }, away: { command: away } }',
  'policies:',
  '  overrides:',
  '    - match: { server: files, tool: reed }',
  '      effect: read_only',
  '    - match: { tool: reed }',
  '      effect: read_only',
  'chaos:',
  '  faults:',
  '    - { name: typo, type: rpc.error, rate: 1, ttl: 1m, match: { server: files, tool: reed } }',
  '    - { name: fits, type: rpc.error, rate: 1, ttl: 1m, match: { server: files, tool: re* } }',
]

/** Validates a config whose policies and faults match the tool `reed` by default. Resolves to exit code and lines. */
async function validating(t: TestContext, control: string, config = lines) {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const file = join(folder, 'breakwater.yaml')
  await writeFile(file, [`gateway: { environment: test, control: '${control}' }`, ...config].join('\n'))
  const said: string[] = []
  const hear = (line: string) => void said.push(line)
  const code = await validate([file], { stdout: hear, stderr: hear }, { BREAKWATER_TOKEN: 'a-token' })
  return { code, said: said.map((line) => line.replaceAll(file, 'FILE')) }
}

test('with a running gateway, matches of missing tools are reported, with their lines', async (t) => {
  const { code, said } = await validating(t, await controlPort(t, { files: ['read', 'write'], away: [] }))
  assert.equal(code, 0)
  const idle = said.filter((line) => line.includes('matches no tool'))
  assert.equal(idle.length, 2, said.join('\n'))
  assert.match(
    idle[0]!,
    /^FILE:5:\d+ +policies\.overrides\[0\]\.match\.tool.*"reed" matches no tool of files/,
  )
  assert.match(idle[1]!, /^FILE:11:\d+ +chaos\.faults\[0\]\.match\.tool.*"reed" matches no tool of files/)
})

test('the file decides which tools are offered, and checks and fallbacks name any tool of their server', async (t) => {
  const control = await controlPort(t, { files: ['read'], mail: ['send'] }, ['old', 'kept'])
  const { said } = await validating(t, control, [
    'mcpServers:',
    '  files: { command: files, tools: { exclude: [old] }, health: { tool: { name: old } } }',
    '  mail: { command: mail, health: { tool: { name: gone } } }',
    'policies:',
    '  overrides:',
    '    - { match: { server: files, tool: "ke*" }, retry: false }',
    '    - { match: { server: files, tool: "ol*" }, retry: false }',
    '    - { match: { server: mail }, degrade: { fallback: { tool: none, server: files } } }',
    '    - { match: { server: files, tool: read }, degrade: { fallback: { tool: kept } } }',
  ])
  assert.deepEqual(
    said.slice(0, -2).map((line) => line.replace(/^FILE:\d+:\d+ +/, '')),
    [
      'mcpServers.mail.health.tool.name  warning: "gone" is no tool of mail',
      'policies.overrides[1].match.tool  warning: "ol*" matches no tool of files: it applies to nothing until such a tool exists',
      'policies.overrides[2].degrade.fallback.tool  warning: "none" is no tool of files',
    ],
  )
})

test('every place that names a tool is held against the tools that servers have', async (t) => {
  const control = await controlPort(t, { files: ['read_file'] })
  const { said } = await validating(t, control, [
    'mcpServers:',
    '  files: { command: files, tools: { include: ["re*", raed_file], exclude: ["old*"] } }',
    'policies:',
    '  sets: { b: { degrade: { fallback: { tool: rest, server: files } } } }',
    'experiments:',
    '  - { name: e, match: { tool: reed_file }, arms: { a: default, b: b } }',
  ])
  assert.deepEqual(
    said.slice(0, -2).map((line) => line.replace(/^FILE:\d+:\d+ +/, '')),
    [
      'mcpServers.files.tools.include[1]  warning: "raed_file" is no tool of files; did you mean read_file?',
      'mcpServers.files.tools.exclude[0]  warning: "old*" matches no tool of files',
      'policies.sets.b.degrade.fallback.tool  warning: "rest" is no tool of files',
      'experiments[0].match.tool  warning: "reed_file" is no tool of files; did you mean read_file?',
    ],
  )
})

test('tools of an entry that differs from the running entry are not judged', async (t) => {
  const control = await controlPort(t, { files: ['read'] })
  const { code, said } = await validating(t, control, [
    'mcpServers: { files: { command: newer, health: { tool: { name: stat } } } }',
  ])
  assert.equal(code, 0)
  assert.equal(
    said.at(-1),
    `  tools were not checked: the gateway at http://${control} has no server of the file up with the same command or URL`,
  )
  assert.equal(said.length, 2, said.join('\n'))
})

test('a port that answers without being a control port is reported; a silent port is not', async (t) => {
  const other = createServer((_, response) => response.writeHead(418).end())
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
  const control = `127.0.0.1:${(other.address() as AddressInfo).port}`
  const { code, said } = await validating(t, control)
  assert.equal(code, 0)
  const why = 'does not answer like the control port of a gateway (status 418)'
  assert.equal(said.at(-1), `  tools were not checked: http://${control} ${why}`)
  other.closeAllConnections()
  await new Promise((resolve) => other.close(resolve))
  const { said: alone } = await validating(t, control)
  assert.doesNotMatch(alone.join('\n'), /tool/)
})

test('a mistake that the parser repeats for each unclosed map is reported once', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const file = join(folder, 'breakwater.yaml')
  await writeFile(file, 'mcpServers: {files: {command: files\n')
  const said: string[] = []
  const hear = (line: string) => void said.push(line)
  assert.equal(await validate([file], { stdout: hear, stderr: hear }, {}), 1)
  assert.equal(said.length, 2, said.join('\n'))
  assert.match(said[1]!, /is not valid: 1 error$/)
})
