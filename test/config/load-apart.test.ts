import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { loadApart } from '../../src/config/load-apart.ts'
import { loadConfig } from '../../src/config/load.ts'
import { type Config, config as schema } from '../../src/config/schema/schema.ts'
import { redact } from '../../src/config/secrets/redact.ts'
import { pause } from '../../src/mesh/clock.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'
import { folder } from './files.ts'

const server = {
  url: 'http://127.0.0.1:3001/mcp',
  headers: { 'X-Key': '${SEARCH_KEY}' },
  tools: { include: ['a*'] },
}

/** A config with many kinds of blocks, and a secret in an unusual place. */
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

/** The last config read. */
const few = schema.parse({})
const many = schema.parse({ mcpServers: serversOf(namesOf(200)) })

/** This filler makes a config longer than the size limit here. */
const long = ' '.repeat(10_000)

test('a config that is read in a thread of its own is the one that is read here', async (t) => {
  for (const text of [config, config + long]) {
    const path = join(await folder(t, { 'breakwater.json': text }), 'breakwater.json')
    const here = await loadConfig(path, env)
    assert.equal(here.ok, true)
    for (const before of [few, many]) assert.deepEqual(await loadApart(path, env, before), here)
  }
})

test('values of variables stay secret, read in a thread or known before', async (t) => {
  const servers = { ...serversOf(namesOf(200)), search: server }
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

test('errors of a config name their place, read in a thread or here', async (t) => {
  for (const beside of ['', long]) {
    const text = `{\n  "mcpServers": { "a": { "url": 7 } }\n}${beside}`
    const path = join(await folder(t, { 'breakwater.json': text }), 'breakwater.json')
    const here = await loadConfig(path, {})
    assert.equal(here.ok, false)
    assert.deepEqual(await loadApart(path, {}, few), here)
  }
})

test('where a thread cannot even be made, the config is read here', async (t) => {
  const path = join(await folder(t, { 'breakwater.json': config + long }), 'breakwater.json')
  // Like a system without resources: sending throws at once, and no event follows.
  const unsendable = { ...env, X: (() => 'x') as unknown as string }
  assert.deepEqual(await loadApart(path, unsendable, many), await loadConfig(path, env))
})

/** Most rounds of a measurement: other work on the machine may delay a round. */
const ROUNDS = 5

/** Returns the longest stall of the event loop during some work, in milliseconds. */
async function longestStop(work: () => Promise<unknown>): Promise<number> {
  const delays = monitorEventLoopDelay({ resolution: 1 })
  delays.enable()
  // A stall before the first sample would go unnoticed.
  await pause(5)
  await work()
  // A stall at the end is noticed in the next turn.
  await pause(5)
  delays.disable()
  return delays.max / 1e6
}

/** A text of a few hundred characters that expands to 100,000 values. */
const bomb = `a: &a [1,1,1,1,1,1,1,1,1,1]\n${'bcdef'
  .split('')
  .map((name, index) => `${name}: &${name} [${Array(10).fill(`*${'abcde'[index]}`).join()}]`)
  .join('\n')}`

for (const { what, text } of [
  { what: 'many servers after few', text: JSON.stringify({ mcpServers: serversOf(namesOf(1_000)) }) },
  { what: 'few that hold much', text: bomb },
  { what: 'no config, but much of it', text: '}'.repeat(100_000) },
])
  test(`${what} are read in a thread, and hold nothing up here`, async (t) => {
    const path = join(await folder(t, { 'breakwater.yaml': text }), 'breakwater.yaml')
    await loadConfig(path, {})
    const here = await longestStop(() => loadConfig(path, {}))
    let apart = Infinity
    for (let round = 0; round < ROUNDS && apart >= here / 2; round++)
      apart = await longestStop(() => loadApart(path, {}, few))
    assert.ok(apart < here / 2, `${apart.toFixed()} ms, and ${here.toFixed()} ms without a thread`)
  })

test('a pipe is read once, even if its size moves the reading to a thread', async (t) => {
  const text = JSON.stringify({ mcpServers: serversOf(namesOf(300)) })
  const path = join(await folder(t, { text }), 'pipe')
  await promisify(execFile)('mkfifo', [path])
  const loading = loadApart(path, {}, few)
  await promisify(execFile)('sh', ['-c', 'cat "$0" > "$1"', path.replace(/pipe$/, 'text'), path])
  const loaded = await loading
  assert.ok(loaded.ok)
  assert.equal(Object.keys(loaded.config.mcpServers).length, 300)
})

test('a config that takes too long to read is given up', async (t) => {
  const path = join(await folder(t, { 'breakwater.yaml': '}'.repeat(200_000) }), 'breakwater.yaml')
  const clock = new ManualClock()
  const loading = assert.rejects(loadApart(path, {}, few, clock), {
    message: 'the config could not be read within 180 s',
  })
  await until('the caller waits for the reading', () => clock.pending > 0)
  await clock.advance(180_000)
  await loading
  assert.equal(clock.pending, 0)
})

for (const { count, who } of [
  { count: 10, who: 'read here' },
  { count: 200, who: 'read in a thread' },
])
  test(`unchanged servers keep the same entry objects, in the new order: ${who}`, async (t) => {
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
