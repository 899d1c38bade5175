import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Room, Samples } from '../../src/experiments/samples.ts'
import { beginArms, collectExperiments, type ExperimentRuns } from '../../src/telemetry/scrape.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'

const experiment = { name: 'ab', arms: { a: 'default', b: 'bold' } }

/** Scrapes experiments repeatedly. Returns the lines of each scrape, without zeros. */
function scraping() {
  const metrics = createMetrics()
  return async (runs: ExperimentRuns): Promise<string[]> => {
    collectExperiments(metrics, runs)
    const text = await metrics.registry.metrics()
    return text.split('\n').filter((line) => /^breakwater_experiment_\w+\{.* [1-9]\d*$/.test(line))
  }
}

const calls = (assigned: string, count: number) =>
  `breakwater_experiment_calls_total{experiment="ab",assigned="${assigned}"} ${count}`

test('each eligible call is counted once, by its kind of assignment', async () => {
  const scrape = scraping()
  const samples = new Samples(new Room())
  samples.begin('task 1', 'a', { tenant: '', now: 0 })
  samples.begin('task 1', 'a', { tenant: '', now: 0 })
  samples.begin('task 2', 'b', { tenant: '', now: 0 })
  samples.begin('session', 'b', { tenant: '', now: 0, isFallback: true })
  samples.leftOut('not_drawn')
  samples.leftOut('excluded')
  assert.deepEqual(await scrape([{ experiment, run: { samples, end: undefined } }]), [
    'breakwater_experiment_running{experiment="ab"} 1',
    'breakwater_experiment_units{arm="ab/a"} 1',
    'breakwater_experiment_units{arm="ab/b"} 2',
    calls('unit', 3),
    calls('fallback', 1),
    calls('not_drawn', 1),
    calls('excluded', 1),
  ])
})

test('calls of which nothing is kept are counted as such', async () => {
  const samples = new Samples(new Room())
  for (let n = 0; n < 25_001; n++) samples.begin(`task ${n}`, 'a', { tenant: '', now: 0, isFallback: true })
  const lines = await scraping()([{ experiment, run: { samples, end: undefined } }])
  assert.deepEqual(lines.slice(1), [
    'breakwater_experiment_units{arm="ab/a"} 25000',
    calls('fallback', 25_000),
    calls('dropped', 1),
  ])
})

test('an experiment that has ended keeps its numbers, and one that begins anew counts from nothing', async () => {
  const scrape = scraping()
  const samples = new Samples(new Room())
  samples.begin('task', 'a', { tenant: '', now: 0 })
  const ended = ['breakwater_experiment_units{arm="ab/a"} 1', calls('unit', 1)]
  assert.deepEqual(await scrape([{ experiment, run: { samples, end: {} } }]), ended)
  assert.deepEqual(
    await scrape([{ experiment, run: { samples: new Samples(new Room()), end: undefined } }]),
    ['breakwater_experiment_running{experiment="ab"} 1'],
  )
})

test('an experiment that has never run is at 0, and an experiment outside the config is absent', async () => {
  const metrics = createMetrics()
  const lines = async (runs: ExperimentRuns) => {
    collectExperiments(metrics, runs)
    return (await metrics.registry.metrics()).match(/^breakwater_experiment_.*$/gm) ?? []
  }
  const zeroes = await lines([{ experiment, run: undefined }])
  assert.equal(zeroes.length, 1 + 2 + 5)
  for (const line of zeroes) assert.match(line, / 0$/)
  assert.deepEqual(await lines([]), [])
})

test('the arms of running experiments begin at 0, for each eligible tool that was called', async () => {
  const metrics = createMetrics()
  const listed = () => true
  for (const tool of ['read', 'write'])
    metrics.tools.of('files', tool, listed).countCall('returned', 'correct', '', 1)
  metrics.tools.of('search', 'query', listed).countCall('returned', 'correct', '', 1)
  metrics.arms.follow(['ab/a', 'ab/b', 'idle/a', 'idle/b', 'guarded/control'])
  const samples = new Samples(new Room())
  const runs: ExperimentRuns = [
    {
      experiment: { ...experiment, match: { server: 'files', tool: 're*' } },
      run: { samples, end: undefined },
    },
    { experiment: { name: 'idle', arms: { a: 'default', b: 'bold' } }, run: undefined },
  ]
  const zeros = async () => {
    beginArms(metrics, runs)
    const text = await metrics.registry.metrics()
    const seen = (text.match(/^breakwater_\w+\{.*arm="[^"]+".*$/gm) ?? []).filter(
      (line) => !line.includes('_bucket{'),
    )
    const byArm = new Map<string, string[]>()
    for (const line of seen) {
      const arm = /arm="([^"]+)"/.exec(line)![1]!
      byArm.set(arm, [...(byArm.get(arm) ?? []), line])
    }
    return byArm
  }
  const byArm = await zeros()
  assert.deepEqual([...byArm.keys()].sort(), ['ab/a', 'ab/b', 'guarded/control'])
  const lines = byArm.get('ab/a')!
  assert.ok(
    lines.every((line) => line.includes('tool="read"') && line.endsWith(' 0')),
    lines.join('\n'),
  )
  // Five results of calls, nine pairs of outcome and verdict, eight of attempts, and sum and count of durations.
  assert.equal(lines.length, 24, lines.join('\n'))
  assert.equal(byArm.get('guarded/control')!.length, 3 * 24)
  metrics.tools.of('files', 'read', listed).countCall('returned', 'correct', 'ab/a', 1)
  const after = (await zeros()).get('ab/a')!
  assert.ok(
    after.includes('breakwater_tool_calls_total{server="files",tool="read",result="returned",arm="ab/a"} 1'),
  )
  assert.equal(after.length, 24, 'a running experiment does not start again')
})
