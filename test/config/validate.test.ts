import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { validate } from '../../src/commands/run/validate.ts'
import { folder } from './files.ts'

async function run(t: TestContext, text: string) {
  const path = await folder(t, { 'gw.yaml': text })
  const stdout: string[] = []
  const stderr: string[] = []
  const out = {
    stdout: (line: string) => void stdout.push(line),
    stderr: (line: string) => void stderr.push(line),
  }
  const code = await validate([join(path, 'gw.yaml')], out, {})
  const short = (lines: string[]) => lines.map((line) => line.replaceAll(`${path}/`, ''))
  return { code, stdout: short(stdout), stderr: short(stderr) }
}

test('validate says that a good config is good, and what is in it', async (t) => {
  assert.deepEqual(await run(t, 'mcpServers: { a: { command: x }, b: { command: x, disabled: true } }'), {
    code: 0,
    stdout: ['gw.yaml is valid: 2 servers (1 disabled)'],
    stderr: ['gw.yaml:1:34  mcpServers.b  warning: is disabled, and left out'],
  })
})

test('validate prints warnings and still succeeds', async (t) => {
  const { code, stdout, stderr } = await run(
    t,
    'mcpServers: { a: { command: x } }\npolicies: { overrides: [{ match: { server: b }, attemptTimeout: false }] }',
  )
  assert.equal(code, 0)
  assert.deepEqual(stdout, ['gw.yaml is valid: 1 server, 1 policy override'])
  assert.deepEqual(stderr, [
    'gw.yaml:2:44  policies.overrides[0].match.server  warning: "b" matches no server',
  ])
})

test('validate says that faults stay off where nothing may arm them', async (t) => {
  const servers = 'mcpServers: { a: { command: x } }\ngateway: { environment: test }'
  const faults = 'faults: [{ name: f, type: rpc.error, rate: 1, ttl: 1m }]'
  assert.deepEqual((await run(t, `${servers}\nchaos: { ${faults} }`)).stdout, [
    'gw.yaml is valid: 1 server, 1 fault that cannot be armed (chaos.enabled is false)',
  ])
  assert.deepEqual((await run(t, `${servers}\nchaos: { enabled: true, ${faults} }`)).stdout, [
    'gw.yaml is valid: 1 server, 1 fault',
  ])
})

test('validate prints every error of a bad config and fails', async (t) => {
  assert.deepEqual(await run(t, 'gateway: { drain: x }\nweather: {}'), {
    code: 1,
    stdout: [],
    stderr: [
      'gw.yaml:1:19  gateway.drain  expected a duration from 0ms to 10m, such as 250ms, 30s or 5m, found "x"',
      'gw.yaml:2:1  weather  unknown key "weather"; allowed are $schema, gateway, mcpServers, servers, context_servers, mcp, inputs, policies, chaos, experiments, health, telemetry',
      'gw.yaml is not valid: 2 errors',
    ],
  })
})
