import { parentPort, workerData } from 'node:worker_threads'
import { giveWay } from '../units/give-way.ts'
import type { Reading } from './load-apart.ts'

// Finding and compiling the modules is a good part of the work.
giveWay()
const { readNews } = await import('./load-apart.ts')
parentPort?.postMessage(await readNews(workerData as Reading))
