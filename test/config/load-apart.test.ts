import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { loadApart } from '../../src/config/load-apart.ts'
import { loadConfig } from '../../src/config/load.ts'
import { type Config, config as schema } from '../../src/config/schema/schema.ts'
import { redact } from '../../src/config/secrets/redact.ts'
import { folder } from './files.ts'

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

const url = 'http://127.0.0.1:3001/mcp'
const namesOf = (count: number) => Array.from({ length: count }, (_, index) => `s${index}`)
const serversOf = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, { url }]))

/** What was read last; a thread reads what comes after many servers. */
const few = schema.parse({})
const many = schema.parse({ mcpServers: serversOf(namesOf(60)) })

test('a config that is read in a thread of its own is the one that is read here', async (t) => {
  const path = join(await folder(t, { 'breakwater.json': config }), 'breakwater.json')
  const here = await loadConfig(path, env)
  assert.equal(here.ok, true)
  for (const before of [few, many]) assert.deepEqual(await loadApart(path, env, before), here)
})

test('what came out of variables is as secret when it was read in a thread, and when it is known already', async (t) => {
  const servers = { ...serversOf(namesOf(60)), search: server }
  const text = JSON.stringify({ mcpServers: servers })
  const path = join(await folder(t, { 'breakwater.json': text }), 'breakwater.json')
  const read = async (before: Config) => {
    const loaded = await loadApart(path, env, before)
    assert.ok(loaded.ok)
    assert.match(JSON.stringify(loaded.config), /hunter/)
    assert.doesNotMatch(JSON.stringify(redact(loaded.config)), /hunter/)
    return loaded.config
  }
  await read(await read(many))
})

test('what is wrong with a config is said with its place, whoever has read it', async (t) => {
  const text = '{\n  "mcpServers": { "a": { "url": 7 } }\n}'
  const path = join(await folder(t, { 'breakwater.json': text }), 'breakwater.json')
  const here = await loadConfig(path, {})
  assert.equal(here.ok, false)
  for (const before of [few, many]) assert.deepEqual(await loadApart(path, {}, before), here)
})

test('where a thread cannot even be made, the config is read here', async (t) => {
  const path = join(await folder(t, { 'breakwater.json': config }), 'breakwater.json')
  // As where the system has no more of them to give: it throws at once, and nothing is told later.
  const unsendable = { ...env, X: (() => 'x') as unknown as string }
  assert.deepEqual(await loadApart(path, unsendable, many), await loadConfig(path, env))
})

for (const { count, who } of [
  { count: 10, who: 'read here' },
  { count: 100, who: 'read in a thread' },
])
  test(`of servers that say what they said before the entries are the same objects, in the new order: ${who}`, async (t) => {
    const [gone, ...names] = namesOf(count)
    const at = await folder(t)
    const path = join(at, 'breakwater.json')
    const read = async (mcpServers: object, before: Config) => {
      await writeFile(path, JSON.stringify({ mcpServers }))
      const loaded = await loadApart(path, {}, before)
      assert.ok(loaded.ok)
      return loaded.config
    }
    const before = schema.parse({ mcpServers: serversOf([gone!, ...names]) })
    const [changed, ...kept] = names
    const after = await read(
      { new: { url }, ...serversOf(kept.toReversed()), [changed!]: { url, grace: '1s' } },
      before,
    )
    assert.deepEqual(Object.keys(after.mcpServers), ['new', ...kept.toReversed(), changed])
    for (const name of kept) assert.equal(after.mcpServers[name], before.mcpServers[name])
    assert.equal(after.mcpServers[changed!]?.grace, 1_000)

    const again = await read({ ...serversOf(kept), [changed!]: { url, grace: 1_000 } }, after)
    assert.deepEqual(Object.keys(again.mcpServers), [...kept, changed])
    for (const name of names) assert.equal(again.mcpServers[name], after.mcpServers[name])
  })
