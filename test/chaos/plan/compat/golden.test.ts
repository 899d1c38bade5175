import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { connectionFaults } from '../../../../src/chaos/faults/connection.ts'
import { httpFaults } from '../../../../src/chaos/faults/http.ts'
import type { FaultRegistry } from '../../../../src/chaos/faults/index.ts'
import { limitFaults } from '../../../../src/chaos/faults/limit.ts'
import { registryFaults } from '../../../../src/chaos/faults/registry.ts'
import { resultFaults } from '../../../../src/chaos/faults/result.ts'
import { rpcFaults } from '../../../../src/chaos/faults/rpc.ts'
import { streamFaults } from '../../../../src/chaos/faults/stream.ts'
import { chaosMonkeyTypes } from '../../../../src/chaos/plan/compat/chaos-monkey.ts'
import { fromChaosMonkey, fromMcpChaos, planFormat } from '../../../../src/chaos/plan/compat/index.ts'
import { mcpChaosTypes } from '../../../../src/chaos/plan/compat/mcp-chaos.ts'
import { chaosSchema } from '../../../../src/chaos/plan/schema.ts'

import assert from 'node:assert/strict'

/** In the checkout: the compiler copies no JSON. */
const folder = join(process.cwd(), 'test/chaos/plan/compat/golden')

/** The fault families that the other formats can express. */
const families: FaultRegistry = {
  ...connectionFaults,
  ...httpFaults,
  ...limitFaults,
  ...registryFaults,
  ...resultFaults,
  ...rpcFaults,
  ...streamFaults,
}

const options = { ttl: '15m' }
const formats = {
  'mcp-chaos': { types: mcpChaosTypes, read: (input: unknown) => fromMcpChaos(input, options) },
  'chaos-monkey': { types: chaosMonkeyTypes, read: (input: unknown) => fromChaosMonkey(input, options) },
} as const

for (const [format, { types, read }] of Object.entries(formats)) {
  for (const type of types) {
    test(`${format}: a plan with ${type} means what the golden file says, and can be read as one of ours`, () => {
      const { input, output } = JSON.parse(readFileSync(join(folder, `${format}.${type}.json`), 'utf8'))
      assert.equal(planFormat(input), format)
      const plan = read(input)
      assert.deepEqual(plan, output)
      chaosSchema(families).parse({ faults: 'faults' in plan ? plan.faults : plan })
    })
  }
}

test('each type has a golden file, and there are no other golden files', () => {
  const expected = Object.entries(formats).flatMap(([format, { types }]) =>
    types.map((type) => `${format}.${type}.json`),
  )
  assert.deepEqual(readdirSync(folder).sort(), expected.sort())
})
