import assert from 'node:assert/strict'
import { test } from 'node:test'
import { callsIn, type Seen, statusLines } from '../../src/commands/look/status.ts'
import { plain } from '../../src/telemetry/colours.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { answer, fault, rig } from '../chaos/rig.ts'
import { injector } from '../../src/chaos/firing/engine.ts'
import { toolCall } from '../support/caller.ts'

test('a call without a reply, with an error, or with a reply known to be wrong has failed', async () => {
  const metrics = createMetrics()
  const counted = (...ends: readonly (readonly [result: string, verdict: string])[]) => {
    for (const [result, verdict] of ends)
      metrics.tools.of('s', 't', () => true).countCall(result, verdict, '', 0.1)
  }
  counted(['returned', 'correct'], ['returned', 'unchecked'], ['returned', 'drift'])
  counted(['cancelled', ''], ['caller_error', 'rpc_error'], ['caller_error', 'tool_error'])
  assert.deepEqual(callsIn(await metrics.registry.metrics()), { s: { all: 6, failed: 0 } })
  counted(['returned', 'tool_error'], ['returned', 'schema_invalid'], ['returned', 'partial_silent'])
  counted(['rpc_error', 'rpc_error'], ['timeout', ''], ['transport_error', ''], ['rejected', ''])
  assert.deepEqual(callsIn(await metrics.registry.metrics()), { s: { all: 13, failed: 7 } })
})

test('breakers of arms that are open are shown with their sets, also those that are held open without a call', () => {
  const held = { server: 's', tool: 't', state: 'open', since: 0, why: 'opened by hand', manual: true }
  const linesOf = (sets: readonly string[]) => {
    const chaos = { state: 'disarmed', since: 0, by: 'boot', why: 'the process started', faults: [] }
    const breakers = sets.map((set) => ({ set, ...held }))
    const seen = { at: 0, wall: 1_000, servers: [], breakers, chaos, calls: {}, reloadRefused: false }
    return statusLines(seen as unknown as Seen, undefined, Infinity, plain).filter((line) =>
      /^BR|^s /.test(line),
    )
  }
  const words = (lines: readonly string[]) => lines.map((line) => line.split(/ {2,}/))
  assert.deepEqual(words(linesOf(['default', 'e1/control'])), [
    ['BREAKER', 'TOOL', 'SET', 'STATE', 'FOR', 'PROBE IN', 'WHY'],
    ['s', 't', 'default', 'open', '1s', 'by hand', 'opened by hand'],
    ['s', 't', 'e1/control', 'open', '1s', 'by hand', 'opened by hand'],
  ])
  assert.deepEqual(words(linesOf(['default'])), [
    ['BREAKER', 'TOOL', 'STATE', 'FOR', 'PROBE IN', 'WHY'],
    ['s', 't', 'open', '1s', 'by hand', 'opened by hand'],
  ])
})

test('the hits on the gateway’s own requests have a column once there are any', async () => {
  const { controller, arm, clock } = rig()
  arm([fault('a', 'test.fail')])
  const shown = () => {
    const seen = {
      at: clock.now(),
      wall: clock.wall(),
      servers: [],
      breakers: [],
      calls: {},
      reloadRefused: false,
    }
    return statusLines({ ...seen, chaos: controller.status() }, undefined, Infinity, plain).join('\n')
  }
  assert.match(shown(), /LEFT +HITS\na .* 0$/)
  await injector('upstream', controller.engine, 'discovery')(() => Promise.resolve(answer()))(toolCall('t'))
  assert.match(shown(), /LEFT +HITS +DISCOVERY\na .* 0 +1$/)
})
