import assert from 'node:assert/strict'
import { test } from 'node:test'
import { coloured, plain, splitColours, wantsColours } from '../../src/telemetry/colours.ts'
import { lineOf, stderrLine, terminalLog } from '../../src/telemetry/terminal-log.ts'
import { roundedDuration } from '../../src/units/duration.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** Without the local time. */
const worded = (entry: Record<string, unknown>) => lineOf(entry).replace(/^\d\d:\d\d:\d\d {2}/, '')

test('an event is one line: time, level, server, words, and what else there is to know', () => {
  const entry = {
    level: 40,
    time: '2026-01-01T10:11:12.345Z',
    server: 'memory',
    reason: 'x y',
    waitMs: 90_000,
  }
  assert.match(
    lineOf({ ...entry, msg: 'server is down' }),
    /^\d\d:11:12 {2}warn {3}memory {2}server is down {2}reason="x y" {2}wait=90s$/,
  )
  assert.equal(
    worded({ level: 30, time: entry.time, msg: 'a\nb', deep: { list: [1, 'two'] } }),
    'info   a\\nb  deep={"list":[1,"two"]}',
  )
  assert.equal(lineOf({ level: 30, msg: 'still', ms: 149 }), '--:--:--  info   still  took=149ms')
  assert.equal(lineOf({ level: 30, msg: 'late' }), '--:--:--  info   late')
})

test('a call is one line, with its outcome in words, for any amount of facts', () => {
  const call = {
    ...{ level: 40, time: '2026-01-01T10:11:12.345Z', msg: 'call', server: 'search', method: 'tools/call' },
    ...{
      tool: 'query',
      requestId: 5,
      result: 'timeout',
      reason: 'attempt_timeout',
      error: 'no answer',
      sent: true,
    },
    ...{
      durationMs: 2_012.345,
      overheadMs: 0.2,
      waitedMs: 0,
      attempts: 3,
      faults: ['slow'],
      fates: ['slow surfaced'],
    },
    ...{ leftOut: 4, intentSource: 'session', spanId: 'f00', traceId: 'abc' },
  }
  assert.equal(
    worded(call),
    'warn   search  query  failed after 2s: no answer (attempt_timeout), 3 attempts, faults: slow surfaced, 4 similar lines left out before  traceId=abc',
  )
  const good = {
    level: 30,
    msg: 'call',
    server: 'a',
    method: 'tools/call',
    tool: 'echo',
    durationMs: 3.26,
    attempts: 1,
  }
  assert.match(lineOf({ ...good, result: 'returned' }), /a {2}echo {2}answered in 3\.3ms$/)
  assert.match(
    lineOf({ ...good, result: 'returned', verdict: 'tool_error' }),
    /answered in 3\.3ms with an error of the tool$/,
  )
  assert.match(lineOf({ ...good, result: 'cancelled' }), /given up by its agent after 3\.3ms \(cancelled\)$/)
})

test('a line about an error has its message and its place', () => {
  const err = {
    type: 'TypeError',
    message: 'no\nway',
    stack: 'TypeError: no\nway\n    at f (x.js:1:2)\n    at g',
  }
  assert.match(
    lineOf({ level: 50, msg: 'a call met a defect', err }),
    /a call met a defect: TypeError: no\\nway \(at f \(x\.js:1:2\)\)$/,
  )
})

test('standard error of a server is a line with its name, and beyond twenty a second only counted', async () => {
  const clock = new ManualClock()
  const lines: string[] = []
  const show = terminalLog({ clock, paint: plain, write: (line) => lines.push(line) })
  for (let n = 0; n < 25; n++) show({ level: 30, server: 'loud', stderr: `line ${n}` })
  show({ level: 30, server: 'quiet', stderr: 'fine\u001b[31m', dropped: 3 })
  assert.equal(lines.length, 21)
  assert.equal(lines[0], 'loud │ line 0')
  assert.equal(lines[20], 'quiet │ fine\\u001b[31m')
  await clock.advance(1_000)
  assert.deepEqual(lines.slice(21), ['loud │ 5 lines left out', 'quiet │ 3 lines left out'])
  show({ level: 30, server: 'loud', stderr: 'again' })
  await clock.advance(1_000)
  assert.deepEqual(lines.slice(23), ['loud │ again'])
  assert.equal(clock.pending, 0)
})

test('colours go by the terminal, NO_COLOR and FORCE_COLOR', () => {
  for (const [isTTY, env, wanted] of [
    [true, {}, true],
    [false, {}, false],
    [true, { NO_COLOR: '1' }, false],
    [true, { NO_COLOR: '' }, true],
    [true, { TERM: 'dumb' }, false],
    [false, { FORCE_COLOR: '1' }, true],
    [false, { FORCE_COLOR: '' }, true],
    [true, { FORCE_COLOR: '0' }, false],
    [true, { FORCE_COLOR: 'false' }, false],
    [false, { FORCE_COLOR: '1', NO_COLOR: '1' }, true],
  ] as const)
    assert.equal(wantsColours(isTTY, env), wanted, JSON.stringify([isTTY, env]))
  assert.deepEqual(splitColours(stderrLine('a', 'b', coloured)), [
    '',
    '\u001b[36m',
    'a',
    '\u001b[39m',
    ' ',
    '\u001b[90m',
    '│',
    '\u001b[39m',
    ' b',
  ])
})

test('a measured time is as exact as people read it', () => {
  for (const [ms, text] of [
    [0, '0ms'],
    [0.44, '0.4ms'],
    [12.6, '13ms'],
    [999.6, '1s'],
    [1_540, '1.5s'],
    [23_400, '23s'],
    [90_000, '90s'],
    [720_000, '12m'],
    [10_800_000, '3h'],
    [259_200_000, '3d'],
  ] as const)
    assert.equal(roundedDuration(ms), text)
})
