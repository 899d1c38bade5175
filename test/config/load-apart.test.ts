import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { loadApart } from '../../src/config/load-apart.ts'
import { loadConfig } from '../../src/config/load.ts'
import { redact } from '../../src/config/secrets/redact.ts'
import { folder } from './files.ts'

const MANY = 1_000

const server = {
  url: 'http://127.0.0.1:3001/mcp',
  headers: { 'X-Key': '${SEARCH_KEY}' },
  tools: { include: ['a*'] },
}

/** One that has something of every kind in it, and a secret where none is looked for. */
const config = JSON.stringify({
  gateway: { limits: { perSession: { rate: '10/s', burst: 20 } } },
  mcpServers: { search: server, local: { command: 'node', args: ['server.js', '${SEARCH_KEY}'] } },
  policies: { overrides: [{ match: { server: 'search' }, rateLimit: { rate: '1/m' } }] },
  chaos: {
    faults: [
      {
        name: 'late',
        type: 'conn.latency',
        rate: 1,
        ttl: '1m',
        distribution: { kind: 'uniform', max: '1s' },
      },
    ],
  },
})
const env = { SEARCH_KEY: 'hunter-two-hunter' }

test('a config that is read in a thread of its own is the one that is read here', async (t) => {
  const path = join(await folder(t, { 'breakwater.json': config }), 'breakwater.json')
  const [here, there] = [await loadConfig(path, env), await loadApart(path, env, MANY)]
  assert.equal(here.ok, true)
  assert.deepEqual(there, here)
})

test('what came out of variables is as secret when it was read in a thread', async (t) => {
  const path = join(await folder(t, { 'breakwater.json': config }), 'breakwater.json')
  const loaded = await loadApart(path, env, MANY)
  assert.ok(loaded.ok)
  assert.doesNotMatch(JSON.stringify(redact(loaded.config)), /hunter/)
})

test('what is wrong with a config is said with its place, whoever has read it', async (t) => {
  const text = '{\n  "mcpServers": { "a": { "url": 7 } }\n}'
  const path = join(await folder(t, { 'breakwater.json': text }), 'breakwater.json')
  const [here, there] = [await loadConfig(path, {}), await loadApart(path, {}, MANY)]
  assert.equal(there.ok, false)
  assert.deepEqual(there, here)
})

test('where a thread cannot even be made, the config is read here', async (t) => {
  const path = join(await folder(t, { 'breakwater.json': config }), 'breakwater.json')
  // As where the system has no more of them to give: it throws at once, and nothing is told later.
  const unsendable = { ...env, X: (() => 'x') as unknown as string }
  assert.deepEqual(await loadApart(path, unsendable, MANY), await loadConfig(path, env))
})
