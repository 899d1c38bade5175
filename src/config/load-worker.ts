import { parentPort, workerData } from 'node:worker_threads'
import { readNews, type Reading } from './load-apart.ts'

parentPort?.postMessage(await readNews(workerData as Reading))
