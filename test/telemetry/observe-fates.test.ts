import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, CallRecord, InjectedFault, Outcome } from '../../src/mesh/call.ts'
import { toolCall } from '../support/caller.ts'
import { answered } from '../policies/breaker/rig.ts'
import { observed } from './observed.ts'

const fault: InjectedFault = {
  name: 'lie',
  type: 'result.empty',
  side: 'upstream',
  attempt: 1,
  status: 'applied',
}
const fates = [{ fault, fate: 'escaped' }] as const

/** A call that is over, and what was told of it in which order. */
async function run(account: (call: Call, outcome: Outcome) => NonNullable<CallRecord['fates']>) {
  const told: string[] = []
  const set = observed(
    () => Promise.resolve(answered()),
    undefined,
    {},
    (call, outcome) => {
      told.push(`account ${outcome.kind}`)
      return account(call, outcome)
    },
    {
      begin: () => void told.push('begin'),
      end: ({ record }) => void told.push(`end ${record.fates?.map(({ fate }) => fate).join() ?? ''}`),
    },
  )
  const call = toolCall('t', {}, { server: 's' })
  await set.service(call)
  return { ...set, told, call }
}

test('what became of faults is asked once per call, and known to spans, metrics and the access log alike', async () => {
  const { told, call, lines, exposed } = await run(() => fates)
  assert.deepEqual(told, ['begin', 'account answered', 'end escaped'])
  assert.equal(call.record.fates, fates)
  assert.deepEqual(
    lines.map((line) => line.fates),
    [['lie escaped']],
  )
  const name = 'breakwater_fault_outcomes_total'
  assert.deepEqual(await exposed(name), [`${name}{fault="lie",fate="escaped"} 1`])
})

test('a call that no fault has to do with keeps no fates, and is not logged for them', async () => {
  const { call, lines } = await run(() => [])
  assert.equal(call.record.fates, undefined)
  assert.deepEqual(lines, [])
})
