import assert from 'node:assert/strict'
import { test } from 'node:test'
import { facts } from '../../src/policies/descriptions.ts'
import { createAccessLog } from '../../src/telemetry/access-log.ts'
import type { Log } from '../../src/telemetry/log.ts'
import { attributeOf, conventionalName, operations } from '../../src/telemetry/metrics/operations.ts'
import { ATTRIBUTES, EVENT_ATTRIBUTES, EVENTS } from '../../src/telemetry/tracing/spans.ts'
import { answered } from '../policies/breaker/rig.ts'
import { toolCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { readPage } from './pages.ts'

test('the page names every key of a line, and every attribute of a span and of a duration of the conventions', async () => {
  const lines: object[] = []
  const write = (line: object) => void lines.push(line)
  const log = { info: write, warn: write } as unknown as Log
  const accessLog = createAccessLog({ sample: 1 }, { log, clock: new ManualClock() })
  accessLog(toolCall('t'), answered(), 'returned', 0, 0)
  const keys = Object.keys(lines[0] ?? {})
  const ofPolicies = facts.flatMap(({ fact: { telemetry } }) =>
    [telemetry.log, telemetry.attribute ?? []].flat(),
  )
  const ofSpans = [ATTRIBUTES, EVENTS, EVENT_ATTRIBUTES].flatMap((names) => Object.values(names))
  assert.ok(keys.length > 20, `${keys.length} keys`)
  const { text } = await readPage('docs/telemetry.md')
  const ofDurations = [
    ...Object.values(operations).map(({ name }) => conventionalName(name)),
    ...Object.values(attributeOf),
  ]
  assert.deepEqual(
    [...keys, ...ofPolicies, ...ofSpans, ...ofDurations].filter((name) => !text.includes(`\`${name}\``)),
    [],
  )
})
