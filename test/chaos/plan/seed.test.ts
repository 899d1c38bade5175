import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { chaos } from '../../../src/chaos/plan/schema.ts'
import { loadConfig } from '../../../src/config/load.ts'
import { readPlan } from '../../../src/commands/run/plan-file.ts'
import { chaosApp, failing } from '../../routes/chaos-app.ts'

/** A seed as written in JSON or YAML, and as reported everywhere. */
const seeds = [
  ['0', 0],
  ['42', 42],
  ['"42"', 42],
  ['4294967296', 4_294_967_296],
  ['9007199254740991', Number.MAX_SAFE_INTEGER],
  ['"9007199254740991"', Number.MAX_SAFE_INTEGER],
  ['"9007199254740992"', '9007199254740992'],
  ['"0018446744073709551615"', undefined],
  ['"00018446744073709551"', 18_446_744_073_709_551n.toString()],
  ['"18446744073709551615"', '18446744073709551615'],
  ['"18446744073709551616"', undefined],
  // A JSON number above 2^53 loses digits.
  ['9007199254740993', undefined],
  ['18446744073709551615', undefined],
  ['-1', undefined],
  ['1.5', undefined],
  ['"0x2a"', undefined],
  ['""', undefined],
] as const

const faultsOf = {
  own: '[{"name":"a","type":"rpc.error","rate":1,"ttl":"1m"}]',
  'mcp-chaos': '[{"type":"error_injection","rate":1}]',
  'chaos-monkey': '[{"target":"*","config":{"type":"connection-refused"}}]',
}

test('a seed has 64 bits, and is read and told alike in each format, over the API and in files', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'seed-'))
  t.after(() => rm(folder, { recursive: true }))
  for (const [written, expected] of seeds) {
    for (const [format, faults] of Object.entries(faultsOf)) {
      const plan = `{"seed":${written},"faults":${faults}}`
      const what = `${format}: ${written}`
      const { ask, controller } = chaosApp()
      const headers = { 'content-type': 'application/json', authorization: 'Bearer sixteen-letters-or-more' }
      const put = await ask('PUT', '/admin/chaos', undefined, { payload: plan, headers })
      assert.deepEqual(
        [put.status, put.body.seed],
        expected === undefined ? [400, undefined] : [200, expected],
        what,
      )
      if (expected === undefined) assert.match(JSON.stringify(put.body.findings), /2\^53 on in quotes/, what)
      else
        assert.match(
          JSON.stringify(controller.journal.entries().at(-1)),
          new RegExp(`"seed":"?${expected}\\b`),
        )

      const file = join(folder, 'gateway.yaml')
      const config = `{"gateway":{"environment":"test"},"mcpServers":{"a":{"command":"true"}},"chaos":${plan}}`
      await writeFile(file, config)
      const loaded = await loadConfig(file, {})
      assert.equal(
        loaded.ok ? loaded.config.chaos.seed : undefined,
        expected,
        `${what} ${loaded.ok ? '' : JSON.stringify(loaded.errors)}`,
      )
      await writeFile(file, plan)
      const wrapped = await readPlan(file, {}, false)
      assert.equal(wrapped.ok ? wrapped.chaos.seed : undefined, expected, what)
    }
  }
})

test('seeds that only differ beyond 32 bits are other seeds', () => {
  const config = chaos.parse({ seed: '4294967338', faults: [failing('a')] })
  assert.notDeepEqual(config.seed, chaos.parse({ seed: 42 }).seed)
})
