import assert from 'node:assert/strict'
import { test } from 'node:test'
import { errorsOf, loadGood } from './files.ts'

const servers = `mcpServers:
  weather: { url: 'http://127.0.0.1:3001/mcp' }
  cache: { url: 'http://127.0.0.1:3002/mcp' }
`

const faults = `  faults:
    - { target: redis, config: { type: connection-refused } }
    - { target: oauth-token, config: { type: timeout, hangMs: 500 }, durationMs: 60000 }
`

test('targets of mcp-chaos-monkey are what the aliases of the config say, in a block and in a file of its own', async (t) => {
  const chaos = `  aliases: { redis: cache, oauth-token: weather/log* }\n${faults}`
  for (const files of [
    { 'main.yaml': `${servers}chaos:\n${chaos}` },
    { 'main.yaml': `${servers}chaos: { file: chaos.yaml }`, 'chaos.yaml': chaos.replace(/^ {2}/gm, '') },
  ]) {
    const { config } = await loadGood(t, files)
    assert.deepEqual(
      config.chaos.faults.map(({ type, match, ttl }) => [type, match, ttl]),
      [
        ['conn.refused', { server: 'cache' }, 3_600_000],
        ['conn.half_open', { server: 'weather', tool: 'log*' }, 60_000],
      ],
    )
  }
})

test('a target that is neither a server nor an alias is an error at its place that names aliases', async (t) => {
  assert.deepEqual(await errorsOf(t, `${servers}chaos:\n${faults}`), [
    '6:17  chaos.faults[0].target  "redis" is no server here; there are weather, cache; "aliases" can map the target to SERVER or SERVER/TOOL',
  ])
  assert.match(
    (
      await errorsOf(t, `${servers}chaos:\n  aliases: { redis: dache, oauth-token: weather }\n${faults}`)
    ).join(),
    /"redis" means "dache" by "aliases", but no server here has this name; there are weather, cache/,
  )
  assert.match(
    (await errorsOf(t, `${servers}chaos:\n  aliases: { redis: a/b/c }`)).join(),
    /chaos\.aliases\.redis .*expected SERVER or SERVER\/TOOL/,
  )
})
