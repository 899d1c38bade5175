import assert from 'node:assert/strict'
import { test } from 'node:test'
import { acts } from '../../../src/commands/compare/sim/live/faults.ts'
import { newTally } from '../../../src/load/shop-agents.ts'
import { readingOf } from '../../../src/commands/compare/sim/live/reading.ts'
import { table } from '../../../src/commands/compare/sim/live/view.ts'
import { plain } from '../../../src/telemetry/colours.ts'

test('the table fits a terminal of 80 characters by 24 lines, however much there is to be told', () => {
  const reading = { ...readingOf([]), calls: 99_999, answered: 0, succeeded: 9_999, failed: 9_999 }
  const count = { injected: 9_999, masked: 9_999, delayed: 9_999, surfaced: 9_999, escaped: 9_999 }
  const faults = acts.flatMap((act) => act.faults.map(({ name }) => name))
  const many = new Map(faults.map((name) => [name, { ...count, not_reached: 9_999 }]))
  const lines = table(
    {
      title: `during: ${acts.reduce((longest, { title }) => (title.length > longest.length ? title : longest), '')}`,
      elapsedMs: 3_600_000,
      totalMs: 3_600_000,
      phases: acts.map(({ name }) => ({ name, reading, tally: newTally() })),
      reading: { ...reading, faults: many },
      gates: new Map([['docs', 'half_open']]),
      faults: [...new Set(faults)],
      armed: new Set(),
    },
    plain,
  )
  assert.ok(lines.length < 24)
  for (const line of lines) assert.ok(line.length < 80, `${line.length}: ${line}`)
})
