import { parentPort, workerData } from 'node:worker_threads'
import { type ReportFacts, reportOn } from './report.ts'
import type { UnitSample } from './samples.ts'

/** What the thread of reports is told: some more units, or that these were all. */
export type ReportMessage = { readonly units: readonly UnitSample[] } | 'whole'

// Without the units, which come in portions.
const { run, ...facts } = workerData as ReportFacts
const units: UnitSample[] = []

parentPort?.on('message', (message: ReportMessage) => {
  if (message === 'whole') parentPort?.postMessage(reportOn({ ...facts, run: run && { ...run, units } }))
  else units.push(...message.units)
})
