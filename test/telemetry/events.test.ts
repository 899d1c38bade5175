import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { MeshEvent } from '../../src/mesh/policy.ts'
import { notePolicies } from '../../src/telemetry/events.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { bad, good, setUp, times } from '../policies/breaker/rig.ts'
import { recordedLog } from '../support/log.ts'

/** Returns the log lines and metrics that events cause. */
async function noted(events: readonly MeshEvent[]) {
  const metrics = createMetrics()
  const { log, lines } = recordedLog()
  for (const event of events) notePolicies(metrics, log)(event)
  const text = await metrics.registry.metrics()
  const exposed = text
    .split('\n')
    .filter((line) => /^breakwater_(policy_events|breaker_transitions)_total\{/.test(line))
  return { lines, exposed }
}

test('an event is counted by server and type, and logged with its details', async () => {
  const detail = { path: '/a', was: 'string', now: 'number' }
  const { lines, exposed } = await noted([
    { type: 'drift', set: 'default', server: 's', tool: 't', detail },
    { type: 'drift', set: 'default', server: 's', tool: 'u', detail },
  ])
  assert.deepEqual(exposed, ['breakwater_policy_events_total{server="s",type="drift"} 2'])
  const { level, msg, server, tool, path, was, now } = lines[0] ?? {}
  assert.deepEqual([level, msg, server, tool], [30, 'drift', 's', 't'])
  assert.deepEqual({ path, was, now }, detail)
})

test('an event without details is an event too', async () => {
  const { lines, exposed } = await noted([{ type: 'odd', set: 'default', server: 's' }])
  assert.deepEqual(exposed, ['breakwater_policy_events_total{server="s",type="odd"} 1'])
  assert.equal(lines.length, 1)
})

test('events of a breaker are counted by dimension and state, and only its opening is a warning', async () => {
  const rig = setUp()
  await rig.sendAll(times(5, bad))
  await rig.clock.advance(5_000)
  await rig.sendAll(times(3, good))
  assert.equal(rig.state(), 'closed')
  const { lines, exposed } = await noted(rig.events)
  const labels = 'server="test",tool="tool"'
  const transitions = exposed.filter((line) => line.startsWith('breakwater_breaker'))
  assert.equal(
    transitions[0],
    `breakwater_breaker_transitions_total{${labels},dimension="consecutive",state="open"} 1`,
  )
  for (const state of ['half_open', 'closed'])
    assert.equal(transitions.filter((line) => line.includes(`state="${state}"`)).length, 1, state)
  assert.equal(
    exposed[0],
    `breakwater_policy_events_total{server="test",type="breaker"} ${rig.events.length}`,
  )
  assert.deepEqual(
    lines.map(({ level, state }) => [level, state]),
    [
      [40, 'open'],
      [30, 'half_open'],
      [30, 'closed'],
    ],
  )
})

test('a breaker of requests that are no calls of a listed tool has a series of its own', async () => {
  const detail = { dimension: 'availability', state: 'open' }
  const { exposed } = await noted([{ type: 'breaker', set: 'default', server: 's', detail }])
  assert.ok(
    exposed.includes(
      'breakwater_breaker_transitions_total{server="s",tool="_other",dimension="availability",state="open"} 1',
    ),
  )
})

test('events in the arm of an experiment are counted and logged under the arm', async () => {
  const detail = { dimension: 'availability', state: 'open' }
  const event = { type: 'breaker', server: 's', detail }
  const { lines, exposed } = await noted([
    { ...event, set: 'default' },
    { ...event, set: 'canary/cautious' },
  ])
  const of = (name: string) =>
    exposed.filter((line) => line.startsWith(`breakwater_${name}_total`) && line.endsWith(' 1'))
  for (const name of ['policy_events', 'breaker_transitions'])
    assert.deepEqual(
      of(name).map((line) => /arm="([^"]*)"/.exec(line)?.[1]),
      [undefined, 'canary/cautious'],
    )
  assert.deepEqual(
    lines.map(({ set }) => set),
    ['default', 'canary/cautious'],
  )
})
