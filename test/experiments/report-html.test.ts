import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import type { ChartData } from '../../src/experiments/html/charts.ts'
import { htmlOf } from '../../src/experiments/report-html.ts'
import type { Report } from '../../src/experiments/report.ts'
import { metricNames } from '../../src/experiments/metrics.ts'
import { overTheWire, simulated, unstarted } from './simulated.ts'

const arms = { control: 'default', steady: 'retries' }

const settings = {
  default: { retry: { maxRetries: 3 } },
  retries: { retry: { maxRetries: 5 } },
}

const won = (more: { readonly looks?: number } = {}) =>
  simulated({
    experiment: { arms, minimumUnits: 100 },
    failing: { control: 0.2, steady: 0.02 },
    tasks: 800,
    ended: 'its verdict was found',
    settings,
    ...more,
  })

/** Returns the visible text: without scripts, styles and tags. */
const textOf = (page: string) =>
  page
    .replace(/<(script|style)\b[^>]*>.*?<\/\1>/gs, ' ')
    .replace(/<[^>]*>/g, ' ')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&')
    .replaceAll('\u2060', '')
    .replace(/\s+/g, ' ')

const chartData = (page: string): ChartData =>
  JSON.parse(/<script type="application\/json" id="chart-data">(.*?)<\/script>/s.exec(page)![1]!) as ChartData

test('a report says its verdict, every metric, and all else that is known, in one order', () => {
  const report = won()
  const text = textOf(htmlOf(overTheWire(report)))
  assert.ok(text.includes(`${report.verdict!.sentence}.`), text.slice(0, 400))
  assert.match(text, /Experiment canary better retries wins: /)
  for (const name of metricNames) assert.equal(text.split(` ${name} `).length >= 3, true, name)
  const titles = [...htmlOf(report).matchAll(/<h2>(.*?)<\/h2>/g)].map(([, title]) => title)
  assert.deepEqual(titles, [
    'Hypothesis',
    'Arms',
    'Settings that differ',
    'Effect over time',
    'Exposure',
    'Metrics',
    'Cost',
    'Faults',
    'Assignment',
    'Shared by the arms',
    'Next steps',
  ])
})

test('a report loads nothing', () => {
  const page = htmlOf(won())
  assert.ok(
    page.includes(
      `<meta http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;; script-src &#39;unsafe-inline&#39;">`,
    ),
  )
  const addresses = page.match(/\bhttps?:\/\/[^\s"')]*/g) ?? []
  assert.deepEqual([...new Set(addresses)], ['https://github.com/leeoniya/uPlot'])
  assert.doesNotMatch(page, /<(link|img|iframe|object|embed|base|form|a)\b/)
  assert.doesNotMatch(page, /<[^>]*\s(src|href|srcset|action|on\w+)=/)
  assert.doesNotMatch(page, /@import|url\(/)
})

test('a report has the data of its charts, and as tables what they show', () => {
  const report = won()
  const page = htmlOf(overTheWire(report))
  const data = chartData(page)
  assert.equal(data.at.length, report.looks.length)
  const [steady] = data.effects as [ChartData['effects'][0]]
  assert.equal(steady.name, 'steady')
  // In percentage points, like the axis.
  assert.ok(Math.abs(steady.difference.at(-1)! - 100 * report.looks.at(-1)!.difference) < 0.01)
  // The first look is too early for a sequence, and the late looks are within the chart.
  assert.ok(data.range[0] <= -1.5 * data.minimumEffect && data.range[1] >= steady.high.at(-1)!)
  assert.deepEqual(
    data.exposure.map((arm) => [arm.name, arm.units.at(-1)]),
    [
      ['control', 400],
      ['steady', 400],
    ],
  )
  assert.equal(page.match(/<details open>/g)?.length, 2)
  assert.match(page, /<noscript>/)
  // Readable without scripts, and by screen readers.
  assert.match(
    page,
    /role="img" aria-label="Line chart of the difference of tasks_without_failure over time\./,
  )
  assert.match(
    page,
    /role="img" width="100%" height="28" aria-label="Faults of control: masked 0, delayed 0, surfaced \d+/,
  )
})

test('intervals are coloured by what is better for their metric, and the one that decides is marked', () => {
  const page = htmlOf(won())
  assert.match(
    page,
    /<tr class="better decides">\s*<th scope="row">tasks_without_failure <span class="tag">decides</,
  )
  assert.match(page, /<tr class="unknown">\s*<th scope="row">task_success</)
  const worse = simulated({
    experiment: { arms, minimumUnits: 100 },
    failing: { control: 0.02, steady: 0.3 },
    tasks: 400,
  })
  assert.match(htmlOf(worse), /<tr class="worse decides">/)
  assert.match(htmlOf(worse), /<div class="verdict worse">\s*<span class="badge">harm</)
})

test('a report as JSON makes the same page as the report itself', () => {
  const few = simulated({ experiment: { arms }, failing: {}, tasks: 12, looks: 3 })
  for (const report of [won(), few, unstarted({ experiment: { arms } })]) {
    const page = htmlOf(overTheWire(report))
    assert.equal(page, htmlOf(report))
    assert.doesNotMatch(textOf(page), /NaN|Infinity|null|undefined/)
  }
})

test('an experiment that has not run has no charts and no script', () => {
  const page = htmlOf(unstarted({ experiment: { arms }, settings }))
  assert.match(textOf(page), /not started The experiment has not run\. Hypothesis/)
  assert.doesNotMatch(page, /<script|uPlot/)
})

test('several treatments have a line, a forest and a table each', () => {
  const report = simulated({
    experiment: { arms: { ...arms, hedged: 'hedges' }, minimumUnits: 100 },
    failing: { control: 0.2, steady: 0.02, hedged: 0.2 },
    tasks: 900,
    ended: 'its maximum duration was over',
  })
  const page = htmlOf(overTheWire(report))
  assert.deepEqual(
    chartData(page).effects.map(({ name }) => name),
    ['steady', 'hedged'],
  )
  for (const title of ['steady against control', 'hedged against control'])
    assert.ok(page.includes(`<h3>${title}</h3>`), title)
  assert.equal(page.match(/<table class="forest">/g)?.length, 2)
  assert.ok(textOf(page).includes(` ${report.verdicts['hedged']!.sentence}.`))
})

/** Ends text, attributes, scripts and comments, and the strings of a script. */
const HOSTILE = `</script><script>alert(1)</script><!--"'><img src=x onerror=alert(1)>\u2028\u2029&amp;\\`

/** Texts that only the gateway itself writes. */
const own = [
  'ended',
  'points',
  'ms',
  'count',
  'higher',
  'lower',
  'better',
  ...metricNames,
] as readonly string[]

/** The same report with a hostile suffix on all names of configs, agents and arms. */
function hostile(report: Report): Report {
  const isArm = (key: string) => report.arms.some(({ name }) => name === key)
  const entry = ([key, value]: [string, unknown]) => [isArm(key) ? key + HOSTILE : key, told(value)] as const
  const told = (value: unknown): unknown => {
    if (typeof value === 'string') return own.includes(value) ? value : value + HOSTILE
    if (Array.isArray(value)) return value.map(told)
    return typeof value === 'object' && value !== null
      ? Object.fromEntries(Object.entries(value).map(entry))
      : value
  }
  return Object.fromEntries(
    Object.entries(report).map(([key, value]) => [key, told(value)]),
  ) as unknown as Report
}

test('names and reasons of any content are plain text', () => {
  const plain = htmlOf(won())
  const page = htmlOf(hostile(overTheWire(won())))
  assert.ok(page.split('alert(1)').length > 50)
  const tags = (text: string) => text.match(/<[/!]?[a-z-]+/gi)!.map((tag) => tag.toLowerCase())
  assert.deepEqual(tags(page), tags(plain))
  // Attributes are unchanged except for the names' text, and no name ends an attribute.
  const attributes = (text: string) =>
    [...text.matchAll(/ ([a-z-]+)="[^"<>]*"(?=[\s>/])/g)].map(([, name]) => name)
  assert.deepEqual(attributes(page), attributes(plain))
  const [, json = ''] = /id="chart-data">(.*?)<\/script>/s.exec(page)!
  assert.doesNotMatch(json, /[<>\u2028\u2029]/)
  assert.equal(chartData(page).effects[0]!.name, `steady${HOSTILE}`)
  assert.ok(textOf(page).startsWith(` Experiment canary${HOSTILE}: better`.replace(/\s+/g, ' ')))
})

test('the chart library is installed with the program', async () => {
  const manifest = await readFile(new URL('../../../package.json', import.meta.url), 'utf8')
  assert.ok('uplot' in (JSON.parse(manifest) as { dependencies: object }).dependencies)
})

test('a report of 240 looks is below 200 KB', () => {
  const bytes = Buffer.byteLength(htmlOf(won({ looks: 240 })))
  assert.ok(bytes < 200_000, String(bytes))
})
