import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { committedDashboards } from '../../deploy/check/expressions.ts'
import { picturesFolder } from '../../deploy/paths.ts'
import type { Answers, Series } from '../../deploy/pictures/answers.ts'
import { answersTo } from '../../deploy/pictures/answers.ts'
import { panelsOf } from '../../deploy/pictures/panels.ts'
import { sheet } from '../../deploy/pictures/sheet.ts'
import { escaped } from '../../deploy/pictures/svg.ts'
import { marksOf, withUnit } from '../../deploy/pictures/units.ts'

const dashboards = committedDashboards()
const RUN = 'npm run dashboards:pictures'

/** The titles in a picture, sorted by name. */
const titlesIn = (svg: string) =>
  [...svg.matchAll(/<g><title>([^<]*)<\/title>/g)].map(([, title]) => title).sort()

test(`every dashboard has a picture that names all of its panels; else: ${RUN}`, () => {
  for (const board of dashboards) {
    const file = `${picturesFolder}${board.uid}.svg`
    assert.ok(existsSync(file), `docs/pictures/${board.uid}.svg is not there; ${RUN} draws it`)
    const titles = panelsOf(board).map(({ title }) => escaped(title))
    assert.deepEqual(titlesIn(readFileSync(file, 'utf8')), titles.sort(), `${board.uid} has changed; ${RUN}`)
  }
})

test('every picture is small, loads nothing, and appears on the page of dashboards', () => {
  const page = readFileSync('docs/dashboards.md', 'utf8')
  const files = readdirSync(picturesFolder)
  assert.deepEqual(files.sort(), dashboards.map(({ uid }) => `${uid}.svg`).sort(), RUN)
  for (const file of files) {
    const svg = readFileSync(picturesFolder + file, 'utf8')
    assert.ok(Buffer.byteLength(svg) < 400_000, `${file} has ${Buffer.byteLength(svg)} bytes`)
    assert.doesNotMatch(svg, /href|<image|<script|url\((?!#)|NaN|undefined/, file)
    assert.ok(page.includes(`(pictures/${file})`), `${file} is not on docs/dashboards.md`)
  }
})

test('clips of charts in one picture have unique ids', () => {
  for (const file of readdirSync(picturesFolder)) {
    const ids = [...readFileSync(picturesFolder + file, 'utf8').matchAll(/ id="([^"]+)"/g)].map(
      ([, id]) => id,
    )
    assert.equal(new Set(ids).size, ids.length, file)
  }
})

test('numbers are written in the units of panels, and an unknown unit is an error', () => {
  const written = [
    withUnit(0.98765, 'percentunit'),
    withUnit(1, 'percentunit'),
    withUnit(0.0123, 's'),
    withUnit(0, 's'),
    withUnit(90, 's'),
    withUnit(-475_200, 's'),
    withUnit(3.14159, 'reqps'),
    withUnit(0.25, 'cps'),
    withUnit(80 * 1024 * 1024, 'bytes'),
    withUnit(1_500, 'short'),
    withUnit(-0.5, 'short'),
    withUnit(0.075, 'short'),
  ]
  assert.deepEqual(written, [
    '98.8 %',
    '100 %',
    '12.3 ms',
    '0 s',
    '1.5 min',
    '-5.5 d',
    '3.14 req/s',
    '0.25 c/s',
    '80 MiB',
    '1.5 K',
    '-0.5',
    '0.075',
  ])
  assert.throws(() => withUnit(1, 'furlongs'), /furlongs/)
})

test('an axis ends at a round number, of bytes as well', () => {
  assert.deepEqual(marksOf(0, 1, 'percentunit'), { end: 1, step: 0.25 })
  assert.deepEqual(marksOf(0, 37, 'reqps'), { end: 40, step: 10 })
  assert.deepEqual(marksOf(0, 0, 'reqps'), { end: 1, step: 0.5 })
  assert.deepEqual(marksOf(0, 90 * 1024 ** 2, 'bytes'), { end: 100 * 1024 ** 2, step: 25 * 1024 ** 2 })
})

const span = { start: 1_000, seconds: 90 }

/** A Prometheus with one series with a gap, and one number. */
const prometheus = {
  between: () =>
    Promise.resolve([
      { metric: { server: 'a<b' }, values: [0, 1, 2, 40, 41].map((at) => [1_000 + at, '0.5'] as const) },
    ]),
  instant: () => Promise.resolve([{ metric: { server: 'a<b' }, value: [1_090, '0.5'] as const }]),
}

test('answers are placed at their times in the run, and marks at the start of a condition', async () => {
  const overview = dashboards.find(({ uid }) => uid === 'breakwater-overview')
  assert.ok(overview)
  const { panels, marks, chosen } = await answersTo(overview, prometheus, span, {})
  const series = (title: string): Series | undefined =>
    panels.find(({ panel }) => panel.title === title)?.series[0]
  const { name, values = [] } = series('Availability by server') ?? {}
  assert.equal(name, 'a<b')
  assert.deepEqual([values.length, values[2], values[3], values[40]], [91, 0.5, null, 0.5])
  assert.deepEqual(series('Availability')?.values, [0.5])
  assert.deepEqual(chosen, { server: 'All' })
  assert.deepEqual([...new Set(marks.map(({ at }) => at))], [0, 40])
})

test('a panel without data says so, and no text of a series is markup', async () => {
  const overview = dashboards.find(({ uid }) => uid === 'breakwater-overview')
  assert.ok(overview)
  const answers = await answersTo(overview, prometheus, span, {})
  const silent: Answers = {
    ...answers,
    panels: answers.panels.map(({ panel }) => ({ panel, series: [] })),
  }
  assert.match(sheet(silent), /no data in this run/)
  assert.doesNotMatch(sheet(answers), /no data|a<b|NaN|undefined/)
  assert.match(sheet(answers), /a&lt;b/)
})
