import { cleanUp } from '../../test/e2e/support/gateway.ts'
import { OtlpReceiver } from '../../test/support/otlp-receiver.ts'
import { committedDashboards } from '../check/expressions.ts'
import { Prometheus } from '../check/prometheus.ts'
import type { Values } from '../check/substitute.ts'
import { startWorld } from '../check/world.ts'
import { answersTo, type Answers } from './answers.ts'
import { STORY_S, tell } from './story.ts'

/** A fault that leaves schemas alone, so that wrong replies are still recognised. */
const descriptions = { type: 'registry.description_drift', description: 'Something else.' }

/**
 * A viewer's choices that differ from `all`: the dashboard of one tool shows a tool with a schema, and A/B shows the
 * comparison and calls without an arm, and not the arms of the guarded run.
 */
const picksFor = (uid: string): Values => {
  if (uid === 'breakwater-tool') return { server: 'flaky', tool: 'typed' }
  return uid === 'breakwater-arms' ? { arm: 'policies/.*|' } : { job: 'breakwater' }
}

/** Runs a gateway under load and faults, scraped by a Prometheus, and asks the dashboards' queries. */
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
