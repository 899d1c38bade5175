import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Policy, Schema } from '../../src/mesh/policy.ts'
import { policies } from '../../src/policies/index.ts'

/** Returns the settings of a policy for an arm with this share of a server's capacity. */
function part(name: keyof typeof policies, settings: object, share: number): Record<string, unknown> {
  const { schema, divided } = policies[name] as { schema: Schema<unknown> } & Pick<Policy<unknown>, 'divided'>
  return divided!(schema.parse(settings), share) as Record<string, unknown>
}

test('slots, rates and what may come after a pause are divided, also where the config leaves them to defaults', () => {
  const { concurrent, perTool } = part('bulkhead', { concurrent: 20, perTool: 10 }, 0.4)
  assert.deepEqual([concurrent, perTool], [8, 4])
  const { rate, burst } = part('rateLimit', { rate: '10/s' }, 0.4)
  assert.deepEqual([rate, burst], [{ calls: 4, perMs: 1_000 }, 4])
  const usual = part('rateLimit', {}, 0.4)
  assert.deepEqual([usual.rate, usual.burst], [{ calls: 40, perMs: 1_000 }, 40])
  const { initial, min, max } = part('adaptiveConcurrency', {}, 0.4)
  assert.deepEqual([initial, min, max], [8, 1, 80])
})

test('a quota is never divided', () => {
  const quota = { calls: 10, per: '1s', queue: 0 }
  assert.deepEqual(part('rateLimit', { quota }, 0.4), policies.rateLimit.schema.parse({ quota }))
})

test('retries and hedges that are allowed however few calls there are do not multiply with arms', () => {
  for (const name of ['retry', 'hedge'] as const) {
    const own = name === 'hedge' ? { after: '100ms' } : {}
    const { budget } = part(name, { ...own, budget: { floor: 5, leastConcurrent: 10, ratio: 0.3 } }, 0.4)
    const { floor, leastConcurrent, ratio } = budget as Record<string, number>
    assert.deepEqual([floor, leastConcurrent, ratio], [2, 10, 0.3])
  }
})
