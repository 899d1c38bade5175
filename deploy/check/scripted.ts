import { INTERVAL_S, Prometheus } from './prometheus.ts'
import { differences } from './scripted/compare.ts'
import { foundWithoutRuns } from './scripted/without-runs.ts'
import { play } from './scripted/play.ts'
import { Stage } from './scripted/stage.ts'

const WARM_UP = 4
const MEASURED = 2

/**
 * Plays tasks with known fates through a gateway. Returns differences between a private Prometheus's figures and the
 * script, as sentences; this gateway has no runs, and the dashboard of runs must say so.
 *
 * A rate ignores the value with which a series is born: growth counts from the first sample. So the script first plays
 * before any scrape, to create every series, and then again; only the second part is measured. An earlier scrape by
 * this check makes the gateway emit no series with 0 first. The script plays more often before than after, because
 * rates extrapolate to before the first sample, but less far where a counter would seem to start from zero. With a
 * large start value, rates extrapolate alike for all series.
 */
export async function playAndCompare(
  folder: string,
  started: (prometheus: Prometheus) => void,
): Promise<string[]> {
  const stage = await Stage.start(folder)
  // The first replies of each tool are unchecked, because its schema is still being compiled.
  await play(stage, 'first')
  await Promise.all(passes('warm-up', WARM_UP).map((pass) => play(stage, pass)))
  await fetch(`${stage.control}/metrics`, { headers: { 'x-prometheus-scrape-timeout-seconds': '1' } })
  const prometheus = await Prometheus.start(new URL(stage.control).host, folder)
  started(prometheus)
  const since = await prometheus.scrapedAfter(0)
  for (const pass of passes('measured', MEASURED)) await play(stage, pass)
  await prometheus.evaluatedAfter(Date.now() / 1_000, INTERVAL_S)
  return [...(await differences(prometheus, since)), ...(await foundWithoutRuns(prometheus))]
}

const passes = (name: string, count: number) =>
  Array.from({ length: count }, (_, index) => `${name}-${index}`)
