import assert from 'node:assert/strict'
import { createHook } from 'node:async_hooks'
import { test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Layer } from '../../../src/mesh/call.ts'
import { breaker } from '../../../src/policies/breaker.ts'
import { toolCall } from '../../support/caller.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { bad, good } from './rig.ts'

const BREAKERS = 5_000
const MOST_MB = 12

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

function heapMB(): number {
  collect()
  collect()
  return process.memoryUsage().heapUsed / 1000 ** 2
}

test('5,000 breakers that had a call each take 12 MB at most, and have nothing to do', async () => {
  const clock = new ManualClock()
  const context = testPolicyContext(clock)
  const config = breaker.schema.parse({})
  const call = toolCall('tool')
  const answer = Promise.resolve(good)
  const failure = Promise.resolve(bad)
  const layers: Layer[] = []
  const build = (name: string) => {
    const layer = breaker.build(config, context, testScope({ server: `s${layers.length % 50}`, tool: name }))
    layers.push(layer)
    return layer
  }
  // Parts loaded once by the first breakers (code, the classes of opossum).
  await build('first')(() => failure)(call)
  const before = heapMB()
  let timers = 0
  // Opossum knows no manual clock: its own timers would be Node's timers.
  const hook = createHook({ init: (_, type) => void (timers += type === 'Timeout' ? 1 : 0) }).enable()
  for (let n = 0; n < BREAKERS; n++) await build(`tool_${n}`)(() => answer)(call)
  hook.disable()
  const heldMB = heapMB() - before
  assert.equal(context.state.list('breaker').length, BREAKERS + 1)
  assert.ok(heldMB <= MOST_MB, `${heldMB.toFixed(1)} MB`)
  assert.deepEqual([clock.pending, timers], [0, 0], 'a timer would cost CPU')
  assert.equal(layers.length, BREAKERS + 1)
})
