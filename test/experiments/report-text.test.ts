import assert from 'node:assert/strict'
import { test } from 'node:test'
import { metricNames } from '../../src/experiments/metrics.ts'
import {
  differenceInWords,
  intervalInWords,
  markdownOf,
  ofArm,
  valueInWords,
} from '../../src/experiments/report-text.ts'
import { reportOn } from '../../src/experiments/report.ts'
import { overTheWire, simulated, simulatedFacts, unstarted } from './simulated.ts'

const arms = { control: 'default', steady: 'retries' }

const few = () =>
  simulated({ experiment: { arms }, failing: { control: 0.1, steady: 0.02 }, tasks: 12, looks: 3 })

const three = () =>
  simulated({
    experiment: { arms: { ...arms, hedged: 'hedges' }, minimumUnits: 100 },
    failing: { control: 0.2, steady: 0.02, hedged: 0.2 },
    tasks: 1_200,
    ended: 'its maximum duration was over',
  })

function section(markdown: string, title: string): string[] {
  const [, after = ''] = markdown.split(`## ${title}\n`)
  return after
    .split(/\n## /)[0]!
    .split('\n')
    .filter((line) => line !== '')
}

test('a report without a run says so, and tells the planned comparison and the first step', () => {
  const settings = { default: { retry: { maxRetries: 3 } }, retries: { retry: { maxRetries: 5 } } }
  const text = markdownOf(overTheWire(unstarted({ experiment: { arms }, settings })))
  assert.match(text, /^# Experiment canary\n\nThe experiment has not run\.\n\n## Hypothesis/)
  assert.deepEqual(section(text, 'Settings that differ').at(-1), '| retry.maxRetries | 3 | 5 |')
  assert.deepEqual(section(text, 'Next steps'), ['The experiment has not run: start it.'])
  assert.doesNotMatch(text, /## (Metrics|Effect over time|Assignment)/)
})

test('whether a write runs in both arms depends on who chooses the arm', () => {
  const shared = (more: object) =>
    section(markdownOf(unstarted({ experiment: { arms, ...more } })), 'Shared by the arms').join('\n')
  assert.match(shared({}), /a write that ran in one arm does not run again in another/)
  assert.match(shared({ assignBy: 'agent' }), /a write made in both arms runs twice/)
})

test('an experiment with few units has dashes where nothing is known, also when JSON made null of it', () => {
  const report = few()
  const text = markdownOf(overTheWire(report))
  assert.equal(text, markdownOf(report))
  assert.doesNotMatch(text, /NaN|Infinity|null|undefined|∞/)
  assert.match(text, /\*\*not decided yet\*\*: 6 tasks in default and 6 in retries, each needs 200\./)
  assert.match(text, /Running since 1970-01-01 00:00:00 UTC, for 3s\./)
  // No agent reported how tasks ended, and six units have no quantiles.
  const rows = section(text, 'Metrics')
  assert.ok(rows.includes('| task_success | – | – | – | – | – |'), rows.join('\n'))
  assert.match(
    rows.find((row) => row.startsWith('| p99'))!,
    / ms \| – \| – \|$/,
  )
  assert.match(section(text, 'Effect over time').at(-1)!, /^\| 3s \| \+?−?[\d.]+ points \| – \|$/)
})

test('an ended experiment with two treatments has a verdict, a sequence and a table of metrics for each', () => {
  const report = three()
  const text = markdownOf(overTheWire(report))
  assert.equal(text, markdownOf(report))
  assert.match(text, /\*\*better\*\*: retries wins: .* \(97\.5 % CI .*800 tasks\)\./)
  assert.match(text, /\n\n.* hedges .*\.\n\nRan from .*: its maximum duration was over\./)
  const [, head] = section(text, 'Effect over time')
  assert.equal(
    head,
    '| after | steady: difference | steady: sequence | hedged: difference | hedged: sequence |',
  )
  assert.equal(section(text, 'Exposure').at(-1), '| 12s | 400 | 400 | 400 |')
  const metrics = section(text, 'Metrics')
  for (const treatment of ['steady', 'hedged'])
    assert.ok(metrics.includes(`### ${treatment} against control`))
  for (const name of metricNames)
    assert.equal(metrics.filter((row) => /^\| \**(\w+?)\** \|/.exec(row)?.[1] === name).length, 2, name)
  const cost = section(text, 'Cost')
  assert.equal(cost.length, 2)
  assert.match(
    cost[0]!,
    /^With retries, a call takes 1\.00 attempts at servers \(1\.00 with default, difference 0\.00\), and .* on average \(95 % interval .* ms\)\.$/,
  )
})

test('over time a dozen looks are shown, the last one among them', () => {
  const failing = { control: 0.1, steady: 0.1 }
  const rows = section(
    markdownOf(simulated({ experiment: { arms }, failing, tasks: 60, looks: 30 })),
    'Exposure',
  )
  assert.ok(rows.length <= 3 + 12, String(rows.length))
  assert.match(rows.at(-1)!, /^\| 30s \| 30 \| 30 \|$/)
})

test('a metric that is a quantile has no effect over time', () => {
  const experiment = { arms, metric: 'p95', minimumEffect: 5 }
  const text = markdownOf(overTheWire(simulated({ experiment, failing: {}, tasks: 60 })))
  assert.deepEqual(section(text, 'Effect over time'), [
    'Quantiles have no confidence sequence, so they are judged only at the end.',
  ])
})

test('numbers of a row have the decimals that its interval needs', () => {
  assert.equal(intervalInWords({ low: 0.0201, high: 0.0613 }, 'points'), '+2.0 to +6.1 points')
  assert.equal(intervalInWords({ low: -0.00012, high: 0.0013 }, 'points'), '−0.01 to +0.13 points')
  assert.equal(intervalInWords({ low: -130.4, high: 12.2 }, 'ms'), '−130 to +12 ms')
  assert.equal(intervalInWords({ low: -Infinity, high: Infinity }, 'ms'), '–')
  assert.equal(differenceInWords(-0.00001, 'points'), '0.0 points')
  assert.equal(valueInWords(0.934, 'points'), '93.4 %')
  assert.equal(valueInWords(null, 'ms'), '–')
})

test('where no value varied, the report says so in place of an interval', () => {
  const text = markdownOf(overTheWire(simulated({ experiment: { arms }, failing: {}, tasks: 60 })))
  const row = section(text, 'Metrics').find((line) => line.startsWith('| attempts_per_call'))
  assert.equal(row, '| attempts_per_call | 1.00 | 1.00 | 0.00 | none: no value varied | – |')
})

test('a p-value is below 0.05 exactly where its interval of 95 % leaves 0 out', () => {
  for (const tasks of [60, 100, 160, 240, 400]) {
    const { metrics } = simulated({ experiment: { arms }, failing: { control: 0.07, steady: 0.03 }, tasks })
    for (const { name, differences } of metrics) {
      const { low, high, p } = differences.steady!
      if (p !== undefined)
        assert.equal(p < 0.05, low > 0 || high < 0, `${name} of ${tasks}: ${low} to ${high}, ${p}`)
    }
  }
})

test('the table calls its p-values adjusted: beside one above 0.05 an interval may leave 0 out', () => {
  const report = simulated({ experiment: { arms }, failing: { control: 0.07 }, tasks: 60 })
  assert.match(section(markdownOf(report), 'Metrics').join('\n'), /^\| metric .*\| adjusted p \|$/m)
})

test('calls that were rejected have a row of their own', () => {
  const facts = simulatedFacts({ experiment: { arms }, failing: {}, tasks: 60 })
  for (const unit of facts.run!.units) if (unit.arm === 'steady') unit.eligible--
  const rows = section(markdownOf(reportOn(facts)), 'Metrics')
  assert.match(
    rows.find((row) => row.startsWith('| rejected'))!,
    /^\| rejected \| 0\.0 % \| 25\.0 % \| \+25\.0 points \|/,
  )
})

test('the test of the shares prints its numbers', () => {
  const facts = simulatedFacts({ experiment: { arms }, failing: {}, tasks: 60 })
  const assigned = new Map([
    ['control', 90],
    ['steady', 30],
  ])
  const text = markdownOf(reportOn({ ...facts, run: { ...facts.run!, assigned } }))
  const ratio = section(text, 'Assignment').at(-1)!
  assert.match(ratio, /^Test, at all looks together, .* planned \(90 in control, 30 in steady\): p = 0\.0/)
  assert.ok(section(text, 'Arms').includes('| steady | retries | 50 % | 30 | 30 | 0 |'))
})

test('an arm may be called like what all objects have', () => {
  assert.equal(ofArm({}, 'constructor'), undefined)
  const named = { control: 'default', constructor: 'retries', ['__proto__']: 'hedges' }
  const failing = { control: 0.1 }
  const settings = { retries: { retry: false } }
  const text = markdownOf(
    overTheWire(simulated({ experiment: { arms: named }, failing, tasks: 30, looks: 2, settings })),
  )
  assert.doesNotMatch(text, /native code|undefined|NaN/)
})

test('an experiment that is not decided says how many units would find what matters, and what those of now find', () => {
  const arms = { control: 'default', steady: 'retries' }
  const report = simulated({
    experiment: { arms, minimumEffect: 0.05 },
    failing: { control: 0.05, steady: 0.05 },
    tasks: 600,
  })
  const [next] = section(markdownOf(report), 'Next steps')
  const found =
    /^Finding a difference of 5 points with probability 0\.8 takes about (\d+) units in default and (\d+) in retries at a single look, and about twice as many with continuous looks\. The present 300 and 300 units find a difference of ([\d.]+) points with the same probability\.$/.exec(
      next!,
    )
  assert.ok(found, next)
  const [needed, others, size] = found.slice(1).map(Number)
  assert.equal(needed, others)
  // Four times the units find half the effect size, as far as shares are alike.
  assert.ok(Math.abs(Math.sqrt(needed! / 300) - size! / 5) < 0.1, next)
})

test('settings that look like markup stay text in Markdown', () => {
  const settings = { default: { degrade: { static: 'a | <img src=x> &amp; p < 5' } }, retries: {} }
  const text = markdownOf(unstarted({ experiment: { arms }, settings }))
  assert.equal(
    section(text, 'Settings that differ').at(-1),
    String.raw`| degrade.static | a \| \<img src=x> \&amp; p < 5 | – |`,
  )
})
