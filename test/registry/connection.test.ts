import assert from 'node:assert/strict'
import { test } from 'node:test'
import { server as schema } from '../../src/config/schema/server-schema.ts'
import { connectionOf, endpointsOf } from '../../src/registry/connection.ts'

const [a, b, c] = ['http://a/mcp', 'http://b/mcp', 'http://c/mcp']
const http = { urls: [a, b], headers: { 'x-key': 'secret-of-a' } }
const stdio = { command: 'node', args: ['server.js'], env: { KEY: 'secret' } }

const connection = (given: object) => connectionOf(schema.parse(given))
const endpoints = (given: object) => endpointsOf(schema.parse(given))

const detached: readonly object[] = [
  { trusted: true },
  { protected: true },
  { tools: { exclude: ['write_*'] } },
  { deliver: 'tool_result' },
  { grace: '1s' },
  { refresh: '1m' },
  { health: { every: '5m' } },
  { timeouts: { discovery: '1s' } },
]

for (const change of [...detached, { passthrough: true }])
  test(`${JSON.stringify(change)} does not touch the connections of a server`, () => {
    assert.equal(connection({ ...http, ...change }), connection(http))
    if (!('passthrough' in change)) assert.equal(connection({ ...stdio, ...change }), connection(stdio))
  })

const attached: readonly object[] = [
  { urls: [a, c] },
  { urls: [b, a] },
  { headers: { 'x-key': 'other' } },
  { era: 'legacy' },
  { forwardHeaders: ['x-user'] },
  { sessionRecovery: 'surface' },
  { connections: 3 },
  { tls: { rejectUnauthorized: false } },
  { maxReply: 1024 },
  { timeouts: { connect: '1s' } },
  { timeouts: { idle: '1s' } },
  { type: 'sse' },
]

for (const change of attached)
  test(`${JSON.stringify(change)} begins the connections of a server anew`, () => {
    assert.notEqual(connection({ ...http, ...change }), connection(http))
  })

for (const change of [
  { maxReply: 1024 },
  { processes: { max: 3 } },
  { timeouts: { connect: '1s', idle: '1s' } },
  { timeout: 600_000 },
])
  test(`${JSON.stringify(change)} does not restart the process of a server`, () => {
    assert.equal(connection({ ...stdio, ...change }), connection(stdio))
  })

test('a process restarts after any change of its start', () => {
  for (const change of [
    { command: 'deno' },
    { args: [] },
    { env: {} },
    { cwd: '/' },
    { sharing: 'per_session' },
    { era: 'modern' },
  ])
    assert.notEqual(connection({ ...stdio, ...change }), connection(stdio))
})

test('an endpoint is identified by its address and access, and not by its position', () => {
  assert.deepEqual(endpoints({ ...http, urls: [b, c, a] }), [
    endpoints(http)[1],
    endpoints({ ...http, urls: [c] })[0],
    endpoints(http)[0],
  ])
  for (const change of [{ headers: { 'x-key': 'other' } }, { era: 'modern' }, { tls: {} }, { type: 'sse' }])
    assert.notEqual(endpoints({ ...http, ...change })[0], endpoints(http)[0])
  for (const change of [{ tools: { exclude: ['x'] } }, { connections: 3 }, { maxReply: 1024 }])
    assert.deepEqual(endpoints({ ...http, ...change }), endpoints(http))
})

test('a process is known by its command, its arguments, its environment and its folder', () => {
  const [known] = endpoints(stdio)
  for (const change of [{ command: 'deno' }, { args: [] }, { env: {} }, { cwd: '/' }])
    assert.notEqual(endpoints({ ...stdio, ...change })[0], known)
  assert.deepEqual(endpoints({ ...stdio, health: false }), [known])
})

test('an address that is there twice is two endpoints, and no secret can be read out of one', () => {
  const twice = endpoints({ ...http, urls: [a, a] })
  assert.equal(new Set(twice).size, 2)
  assert.equal(twice[0], endpoints(http)[0])
  assert.match(twice.join(' '), /^[0-9a-f]{16} [0-9a-f]{16}-2$/)
})
