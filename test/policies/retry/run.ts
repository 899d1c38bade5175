import assert from 'node:assert/strict'
import type { Call, Outcome } from '../../../src/mesh/call.ts'
import type { Effect } from '../../../src/mesh/policy.ts'
import { retry } from '../../../src/policies/retry.ts'
import { toolCall } from '../../support/caller.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { pass, scripted } from './scripted.ts'

/** Returns the outcome of a call whose tries end with `outcomes`. */
export async function run(
  outcomes: Outcome[],
  { effect = 'read_only', config = {}, call = toolCall('tool') }: Options = {},
) {
  const clock = new ManualClock()
  const { service, calls } = scripted(...outcomes)
  const layer = retry.build(retry.schema.parse(config), testPolicyContext(clock), testScope({ effect }))
  const told = layer(service)(call)
  await pass(clock, 60_000)
  assert.equal(clock.pending, 0)
  return { outcome: await told, calls, record: call.record }
}

interface Options {
  effect?: Effect
  config?: object
  call?: Call
}
