import { parentPort, workerData } from 'node:worker_threads'
import { giveWay } from '../units/give-way.ts'
import { type ReportFacts, reportOn } from './report.ts'
import type { UnitSample } from './samples.ts'
import type { UnitMessage } from './unit-thread.ts'

giveWay()

// The units arrive in portions, as messages.
const { run, ...facts } = workerData as ReportFacts
const units: UnitSample[] = []

parentPort?.on('message', (message: UnitMessage) => {
  if (message === 'whole') parentPort?.postMessage(reportOn({ ...facts, run: run && { ...run, units } }))
  else units.push(...message.units)
})
