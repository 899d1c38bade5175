import { cleanUp } from '../../test/e2e/support/gateway.ts'
import { OtlpReceiver } from '../../test/support/otlp-receiver.ts'
import { committedDashboards } from '../check/expressions.ts'
import { Prometheus } from '../check/prometheus.ts'
import type { Values } from '../check/substitute.ts'
import { startWorld } from '../check/world.ts'
import { answersTo, type Answers } from './answers.ts'
import { STORY_S, tell } from './story.ts'

/** Tools keep their schemas, so that it can be seen what becomes of wrong replies. */
const descriptions = { type: 'registry.description_drift', description: 'Something else.' }

/** What a viewer has chosen where it is not everything: on the dashboard of one tool, the one that can be checked. */
const picksFor = (uid: string): Values =>
  uid === 'breakwater-tool' ? { server: 'flaky', tool: 'typed' } : { job: 'breakwater' }

/** Lets a gateway work under load and faults, with a Prometheus that looks at it, and asks what the dashboards ask. */
export async function watch(folder: string): Promise<Answers[]> {
  const receiver = await OtlpReceiver.start({ after: () => undefined })
  let prometheus: Prometheus | undefined
  try {
    const world = await startWorld(folder, receiver.url, descriptions)
    prometheus = await Prometheus.start(new URL(world.control).host, folder, { instance: 'gateway' })
    const run = { start: await tell(world), seconds: STORY_S }
    const answers: Answers[] = []
    for (const board of committedDashboards())
      answers.push(await answersTo(board, prometheus, run, picksFor(board.uid ?? '')))
    return answers
  } finally {
    await prometheus?.stop()
    receiver.close()
    await cleanUp()
  }
}
