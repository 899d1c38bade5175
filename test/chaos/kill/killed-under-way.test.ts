import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import { test } from 'node:test'
import type { Side } from '../../../src/chaos/fault.ts'
import { faults as registry } from '../../../src/chaos/faults/index.ts'
import type { Fault } from '../../../src/chaos/plan/common.ts'
import { chaos } from '../../../src/chaos/plan/schema.ts'
import { loadConfig } from '../../../src/config/load.ts'
import type { Outcome } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { newCall } from '../../support/caller.ts'
import { answer, fault, rig } from '../rig.ts'

const loaded = await loadConfig('config/chaos.yaml', {})
/** One fault of every kind. */
const examples: readonly Fault[] = loaded.ok ? loaded.config.chaos.faults : []

const replies: Readonly<Record<string, Outcome>> = {
  'a good reply': answer(),
  'a list': answer({ tools: [{ name: 't', inputSchema: { type: 'object' } }], nextCursor: 'more' }),
  'a failure': { kind: 'failed', error: gatewayError('upstream_disconnected', 'gone', { sent: true }) },
}

/** Returns the outcome of a call whose server replies after a kill. Undefined if the fault acted before the kill. */
async function killedUnderWay(example: Fault, side: Side, method: string, reply: Outcome) {
  let giveReply: () => void = () => undefined
  const replied = new Promise<Outcome>((resolve) => (giveReply = () => resolve(reply)))
  const { send, controller, clock, tally } = rig({ registry, server: () => replied })
  const { match: _, when: __, ...fields } = example
  controller.apply({ ...chaos.parse({ enabled: true }), faults: [{ ...fields, rate: 1, side }] })
  assert.deepEqual(controller.arm('me', 'a test'), { ok: true })
  let outcome: Outcome | undefined
  const params = { name: 't', _meta: { progressToken: 1 } }
  const sent = send(newCall({ method, params })).then((sent) => (outcome = sent))
  await setImmediate()
  if (outcome !== undefined) return undefined
  controller.kill('me', 'enough')
  giveReply()
  await sent
  assert.equal(clock.pending, 0, 'no timer or waiter is left')
  assert.equal(tally(example.name).concurrent, 0)
  return outcome
}

for (const [what, reply] of Object.entries(replies)) {
  test(`a call hit by any fault gets ${what} as its server gave it, after a kill`, async () => {
    const held = new Set<string>()
    for (const example of examples) {
      const { methods = ['tools/call'], sides = ['upstream', 'client'] } = registry[example.type]!
      for (const side of sides) {
        for (const method of methods.filter((one) => one === 'tools/call' || one === 'tools/list')) {
          const got = await killedUnderWay(example, side, method, reply)
          if (got === undefined) continue
          held.add(example.type)
          assert.equal(got, reply, `${example.type} (${side}, ${method})`)
        }
      }
    }
    assert.ok(held.size > 25, `other faults acted before: ${held.size}`)
  })
}

test('a fault behind one that held the call does nothing once both are killed', async () => {
  const { arm, send, controller, tally } = rig()
  arm([fault('a', 'test.hold'), fault('b', 'test.fail'), fault('c', 'test.reply')])
  const sent = send(newCall({ method: 'tools/call', params: { name: 't' } }))
  controller.kill('me', 'enough')
  assert.deepEqual(await sent, answer())
  assert.equal(tally('a').hits, 1)
  assert.equal(tally('b').hits + tally('c').hits, 0)
  const [, behind] = controller.journal.decisions()
  assert.deepEqual(behind?.note, { why: 'the fault had ended when the call reached it' })
})
