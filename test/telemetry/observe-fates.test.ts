import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome } from '../../src/mesh/call.ts'
import {
  faultFates,
  type FaultFate,
  type InjectedFault,
  injectedFaults,
  rejectedOver,
} from '../../src/mesh/injected.ts'
import { toolCall } from '../support/caller.ts'
import { answered } from '../policies/breaker/rig.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { noteFaults } from '../../src/telemetry/observe-policies.ts'
import { exposedBy, observed } from './observed.ts'

const fault: InjectedFault = {
  name: 'lie',
  type: 'result.empty',
  side: 'upstream',
  attempt: 1,
  status: 'applied',
}
const fates = [{ fault, fate: 'escaped' }] as const

/** A finished call, and its reports in order. */
async function run(account: (call: Call, outcome: Outcome) => readonly FaultFate[]) {
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
      end: ({ record }) =>
        void told.push(
          `end ${
            faultFates
              .of(record)
              ?.map(({ fate }) => fate)
              .join() ?? ''
          }`,
        ),
    },
  )
  const call = toolCall('t', {}, { server: 's' })
  await set.service(call)
  return { ...set, told, call }
}

test('fates are determined once per call, and known to spans, metrics and the access log alike', async () => {
  const { told, call, lines, exposed } = await run(() => fates)
  assert.deepEqual(told, ['begin', 'account answered', 'end escaped'])
  assert.equal(faultFates.of(call.record), fates)
  assert.deepEqual(
    lines.map((line) => line.fates),
    [['lie escaped']],
  )
  const name = 'breakwater_fault_outcomes_total'
  assert.deepEqual(await exposed(name), [`${name}{fault="lie",fate="escaped"} 1`])
})

test('a call that no fault has to do with keeps no fates, and is not logged for them', async () => {
  const { call, lines } = await run(() => [])
  assert.equal(faultFates.of(call.record), undefined)
  assert.deepEqual(lines, [])
})

test('faults, what became of them and what was done about them are counted by arm', async () => {
  const metrics = createMetrics()
  for (const arm of ['', 'ab/a']) {
    const { record } = toolCall('t', {}, { server: 's' })
    record.arm = arm
    injectedFaults.note(record, [{ ...fault, resent: true }])
    rejectedOver.note(record, ['lie'])
    faultFates.note(record, [{ fault, fate: 'delayed', delayedMs: 500 }])
    noteFaults(metrics, record)
  }
  for (const [name, labels, value] of [
    ['faults_injected_total', 'fault="lie",type="result.empty"', 1],
    ['fault_outcomes_total', 'fault="lie",fate="delayed"', 1],
    ['fault_delay_seconds_total', 'fault="lie"', 0.5],
  ] as const)
    assert.deepEqual(await exposedBy(metrics, `breakwater_${name}`), [
      `breakwater_${name}{${labels}} ${value}`,
      `breakwater_${name}{${labels},arm="ab/a"} ${value}`,
    ])
  assert.equal((await exposedBy(metrics, 'breakwater_fault_reactions_total')).length, 4)
})
