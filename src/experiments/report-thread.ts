import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { nextTurn } from '../mesh/clock.ts'
import type { Report, ReportFacts } from './report.ts'
import type { ReportMessage } from './report-worker.ts'

/** Most units that are copied to the thread in one turn of the event loop: it takes a millisecond or two. */
const UNITS_A_TURN = 1_000

/** Most memory that a report may take, in megabytes: of 50,000 units with 32 durations each it takes about 150. */
const MAX_HEAP_MB = 512

/**
 * Puts reports together in a thread of its own, because intervals of tens of thousands of units take a second or two, in
 * which no call may stand still. One report at a time; whoever asks for one that is under way gets that one.
 */
export class ReportThread {
  readonly #underWay = new Map<string, Promise<Report>>()
  #last: Promise<unknown> = Promise.resolve()

  /** `facts` is asked for when its turn has come. Rejects when the thread fails. */
  report(name: string, facts: () => ReportFacts): Promise<Report> {
    const underWay = this.#underWay.get(name)
    if (underWay !== undefined) return underWay
    const report = this.#last.then(() => computed(facts())).finally(() => this.#underWay.delete(name))
    this.#underWay.set(name, report)
    // Those that come next do so whatever becomes of this one, which whoever asked for it hears.
    this.#last = report.catch(() => undefined)
    return report
  }
}

async function computed({ run, ...facts }: ReportFacts): Promise<Report> {
  const units = run?.units ?? []
  const worker = new Worker(new URL('./report-worker.js', import.meta.url), {
    workerData: { ...facts, run: run && { ...run, units: [] } } satisfies ReportFacts,
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
  })
  const answered = once(worker, 'message') as Promise<[Report]>
  // What goes wrong before it is waited for is found out then.
  answered.catch(() => undefined)
  const send = (message: ReportMessage) => worker.postMessage(message)
  try {
    for (let at = 0; at < units.length; at += UNITS_A_TURN) {
      send({ units: units.slice(at, at + UNITS_A_TURN) })
      await nextTurn()
    }
    send('whole')
    const [report] = await answered
    return report
  } finally {
    await worker.terminate()
  }
}
