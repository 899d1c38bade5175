import { OtlpReceiver } from '../../test/support/otlp-receiver.ts'
import { until } from '../../test/support/until.ts'
import { ask } from './ask.ts'
import { astray } from './exemplars.ts'
import { PLAN, playRun } from './guarded-run.ts'
import { drive } from './load.ts'
import { Prometheus } from './prometheus.ts'
import { command, isIll, metricsOf, startWorld, type World } from './world.ts'

/** Tasks before the faults are disarmed, and after they are armed again. */
const TASKS = 80
const LAST_TASKS = 25

/** Length of the stage of the guarded run, in seconds. */
const STAGE_S = 4

const hasPartial = async (stage: World) =>
  /^breakwater_partial_results_total\{.*arm="policies\//m.test(await metricsOf(stage))

/** The source of the followed exemplars. */
const traced = { server: 'flaky', tools: ['read', 'typed', 'write'] }

/** Returns all defects of dashboards and rules against a real gateway and a real Prometheus. */
export async function live(folder: string, started: (prometheus: Prometheus) => void): Promise<string[]> {
  const receiver = await OtlpReceiver.start({ after: () => undefined })
  try {
    const stage = await startWorld(folder, receiver.url)
    const prometheus = await Prometheus.start(new URL(stage.control).host, folder)
    started(prometheus)
    const began = performance.now()
    // A scrape may return a slightly older, cached text.
    const isSeen = (what: string) =>
      until(`Prometheus reads ${what}`, async () => (await prometheus.instant(what)).length > 0)
    // Only a call that fails in all attempts gets the static answer, and chance decides which calls do.
    const isEnough = async (played: number) => played >= TASKS && (await hasPartial(stage))
    // The run is over before an operator disarms all faults, its own included.
    const [tasks] = await Promise.all([drive(stage, isEnough), playRun(stage, STAGE_S)])
    await isSeen(`sum(breakwater_runs_ended_total{plan="${PLAN}"}) == 1`)
    await command(stage, '/admin/reload')
    await command(stage, '/admin/chaos/disarm')
    await isSeen('breakwater_chaos_armed == 0')
    await stage.shaky.behave({ read: { failing: 1 } })
    await drive(stage, () => isIll(stage, 'shaky'))
    await isSeen('breakwater_incidents_open{server="shaky"} == 1')
    await stage.shaky.behave({ read: {} })
    await drive(stage, async () => !(await isIll(stage, 'shaky')))
    await isSeen('breakwater_incidents_open{server="shaky"} == 0')
    await command(stage, '/admin/chaos/arm')
    await drive(stage, (played) => played >= LAST_TASKS)
    await isSeen('breakwater_chaos_armed == 1')
    const seconds = Math.ceil((performance.now() - began) / 1_000)
    const { asked, problems } = await ask(prometheus, seconds)
    console.log(
      `${tasks} tasks of agents and more, ${seconds} s; ${asked} queries and rules asked of a real Prometheus`,
    )
    return [...problems, ...(await astray(prometheus, receiver, { ...traced, seconds }))]
  } finally {
    receiver.close()
  }
}
