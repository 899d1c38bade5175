import { INTERVAL_S, Prometheus } from './prometheus.ts'
import { differences } from './scripted/compare.ts'
import { play } from './scripted/play.ts'
import { Stage } from './scripted/stage.ts'

const WARM_UP = 4
const MEASURED = 2

/**
 * Plays tasks of agents whose fates are known to a gateway, and returns how what a Prometheus of its own makes of its
 * counters differs from what the script comes to, in words.
 *
 * A rate is about what a series grew by since its first sample: with what it is born with, it is not concerned. So the
 * script is played before the first scrape, that every series is born at once, and then again; only that is measured.
 * A scrape before those of Prometheus leaves the gateway no series to give with 0 first.
 * It is played more often before than after, for rates also guess what came before the first sample, and less so where
 * a counter looks as if it had been zero just then. That way they guess alike for all series.
 */
export async function playAndCompare(
  folder: string,
  started: (prometheus: Prometheus) => void,
): Promise<string[]> {
  const stage = await Stage.start(folder)
  // The first replies of each tool are unchecked: its schema is compiled then.
  await play(stage, 'first')
  await Promise.all(passes('warm-up', WARM_UP).map((pass) => play(stage, pass)))
  await fetch(`${stage.control}/metrics`, { headers: { 'x-prometheus-scrape-timeout-seconds': '1' } })
  const prometheus = await Prometheus.start(new URL(stage.control).host, folder)
  started(prometheus)
  const since = await prometheus.scrapedAfter(0)
  for (const pass of passes('measured', MEASURED)) await play(stage, pass)
  await prometheus.evaluatedAfter(Date.now() / 1_000, INTERVAL_S)
  return differences(prometheus, since)
}

const passes = (name: string, count: number) =>
  Array.from({ length: count }, (_, index) => `${name}-${index}`)
