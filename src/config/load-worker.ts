import { parentPort, workerData } from 'node:worker_threads'
import { giveWay } from '../units/give-way.ts'
import type { Reading } from './load-apart.ts'

// Gives way to other threads before the imports, because loading the modules is a large part of the work.
giveWay()
const { readNews } = await import('./load-apart.ts')
parentPort?.postMessage(await readNews(workerData as Reading))
