import { parentPort, workerData } from 'node:worker_threads'
import { giveWay } from '../units/give-way.ts'
import type { JudgeFacts } from './judge-thread.ts'
import { judgeUnits } from './judge.ts'
import type { UnitSample } from './samples.ts'
import type { UnitMessage } from './unit-thread.ts'

giveWay()

// The units arrive in portions, as messages.
const { experiment, known } = workerData as JudgeFacts
const all: UnitSample[] = []

parentPort?.on('message', (message: UnitMessage) => {
  if (message === 'whole')
    parentPort?.postMessage(judgeUnits(experiment, { ...known, all }, { isOver: true }))
  else all.push(...message.units)
})
