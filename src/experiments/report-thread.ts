import type { Report, ReportFacts } from './report.ts'
import { askThread } from './unit-thread.ts'

/**
 * Makes reports in a separate thread: intervals of tens of thousands of units take a second or two, and calls must not
 * wait. Makes a report at a time; requests for a report under way share the report.
 */
export class ReportThread {
  readonly #underWay = new Map<string, Promise<Report>>()
  #last: Promise<unknown> = Promise.resolve()

  /** `facts` is called when the report's turn comes. Rejects when the thread fails. */
  report(name: string, facts: () => ReportFacts): Promise<Report> {
    const underWay = this.#underWay.get(name)
    if (underWay !== undefined) return underWay
    const report = this.#last.then(() => computed(facts())).finally(() => this.#underWay.delete(name))
    this.#underWay.set(name, report)
    // Later reports get their turn even after a failure; only the caller of the failed report sees the error.
    this.#last = report.catch(() => undefined)
    return report
  }
}

function computed({ run, ...facts }: ReportFacts): Promise<Report> {
  const without: ReportFacts = { ...facts, run: run && { ...run, units: [] } }
  return askThread(new URL('./report-worker.js', import.meta.url), without, run?.units ?? [])
}
