import assert from 'node:assert/strict'
import { test } from 'node:test'
import { showProgress } from '../../src/commands/shared/progress.ts'
import { table } from '../../src/commands/shared/table.ts'
import { Terminal } from '../../src/commands/shared/terminal.ts'
import { coloured, splitColours } from '../../src/telemetry/colours.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { screenOf } from '../support/screen.ts'

/** Returns the number of characters that a terminal shows. */
const shownLength = (text: string) =>
  splitColours(text)
    .filter((_, at) => at % 2 === 0)
    .join('').length

/** Two streams to one screen, with everything written to the screen. */
function screen(isTTY: boolean, env: Record<string, string> = {}) {
  const written: string[] = []
  const stream = { isTTY, columns: 40, rows: 5, write: (text: string) => void written.push(text) }
  return { written, out: new Terminal(stream, stream, env) }
}

const CLEAR = '\r\u001b[2K'

test('the line at the bottom goes while another is written, and comes back below it', () => {
  const { written, out } = screen(true)
  out.status?.('memory  starting, 3s')
  out.stdout('a line')
  out.status?.('memory  starting, 4s')
  out.status?.('memory  starting, 4s')
  out.status?.(undefined)
  out.stderr('the last')
  assert.deepEqual(written, [
    `${CLEAR}memory  starting, 3s`,
    CLEAR,
    'a line\n',
    'memory  starting, 3s',
    `${CLEAR}memory  starting, 4s`,
    CLEAR,
    'the last\n',
  ])
})

test('several status lines are redrawn in place, and leave no line behind', () => {
  const { written, out } = screen(true)
  out.stdout('before')
  out.status?.(['one', 'two', 'three'])
  out.stdout('between')
  out.status?.(['one', 'three'])
  out.status?.(['界'.repeat(30), 'end'])
  assert.deepEqual(screenOf(written.join(''), 40), ['before', 'between', '界'.repeat(30), 'end'])
  out.status?.(undefined)
  out.stdout('after')
  assert.deepEqual(screenOf(written.join(''), 40), ['before', 'between', 'after'])
})

test('status lines leave the window a free line, so that each can be removed', () => {
  const { written, out } = screen(true)
  assert.equal(out.height, 5)
  out.status?.(['1', '2', '3', '4', '5', '6'])
  assert.deepEqual(screenOf(written.join('')), ['1', '2', '3', '4'])
})

test('the status line is no wider than the screen, and holds no control sequence', () => {
  const { written, out } = screen(true)
  out.status?.(`\u001b[2J${'x'.repeat(100)}`)
  assert.equal(written[0], `${CLEAR}\\u001b[2J${'x'.repeat(34)}…`)
})

test('without a terminal there is no status line, no page and no colour, and foreign control characters have no effect', () => {
  const { written, out } = screen(false)
  assert.equal(out.status, undefined)
  assert.equal(out.page, undefined)
  assert.equal(out.paint('bad', 'down'), 'down')
  out.stdout('one\ntwo\u001b[31m\u001b[2J')
  assert.deepEqual(written, ['one\ntwo\\u001b[31m\\u001b[2J\n'])
})

test('progress shows on a terminal after two seconds, every second, and is gone afterwards', async () => {
  const { written, out } = screen(true)
  const clock = new ManualClock()
  const end = showProgress(out, clock, (ms) => `${ms}`)
  await clock.advance(1_999)
  assert.deepEqual(written, [])
  await clock.advance(1)
  await clock.advance(1_000)
  end()
  assert.deepEqual(written, [`${CLEAR}2000`, `${CLEAR}3000`, CLEAR])
  assert.equal(clock.pending, 0)
})

test('without a terminal progress is printed in plain lines, every ten seconds', async () => {
  const { written, out } = screen(false)
  const clock = new ManualClock()
  const end = showProgress(out, clock, (ms) => (ms < 15_000 ? undefined : `after ${ms}`))
  for (let tens = 0; tens < 3; tens++) await clock.advance(10_000)
  end()
  assert.deepEqual(written, ['breakwater: after 20000\n', 'breakwater: after 30000\n'])
  assert.equal(clock.pending, 0)
})

test('colours take no room in a table, and text from others sets no colours', () => {
  const rows = [
    ['memory', { text: 'up', tone: 'good' }, 9],
    ['a\u001b[31m', { text: 'down', tone: 'bad' }, 10],
  ] as const
  const bare = table(['SERVER', 'STATE', 'TOOLS'], rows, 80)
  const painted = table(['SERVER', 'STATE', 'TOOLS'], rows, 80, coloured)
  assert.deepEqual(bare, [
    'SERVER       STATE  TOOLS',
    'memory       up         9',
    'a\\u001b[31m  down      10',
  ])
  assert.deepEqual(
    painted.map(shownLength),
    bare.map(({ length }) => length),
  )
  assert.match(painted[1] ?? '', /\u001b\[32mup {3}\u001b\[39m/)
})
