import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp } from '../support/gateway.ts'
import { assertSound } from '../support/scene.ts'
import { closeClients } from '../support/sdk-client.ts'
import { everywhere, Stage, type Act } from '../support/stage.ts'

const acts: readonly Act[] = (['upstream', 'client'] as const).map((side) => ({
  tool: `swap_${side}`,
  type: 'rpc.reorder',
  fault: { side, maxHold: '10s' },
}))

let stage: Stage

before(async () => {
  stage = await Stage.start(acts)
})
after(async () => {
  await closeClients()
  await cleanUp()
})

for (const act of acts) {
  test(`${act.tool}: the second reply overtakes the first, and each goes to its own call`, () =>
    everywhere(act, async (lane) => {
      const order: string[] = []
      const call = async () => order.push((await stage.call(lane, act.tool)).text ?? '')
      const first = call()
      // Not only its call, which the fault has chosen before it is sent: two calls on their way may arrive in either order.
      await until('the first reply waits', async () => (await stage.notes(lane, act))[0]?.effect === 'waits')
      await Promise.all([first, call()])
      assert.deepEqual(order, [`${act.tool} 2`, `${act.tool} 1`], lane.name)
      assert.deepEqual(await stage.attempts(lane, act.tool), { returned: 2 })
      assert.deepEqual(await stage.fates(lane, act), { masked: 1, delayed: 1 })
    }))
}

test('the engine had no part in it', () => assertSound(stage))
