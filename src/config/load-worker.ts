import { parentPort, workerData } from 'node:worker_threads'
import type { Reading } from './load-apart.ts'
import { readConfig } from './load.ts'

const { path, env } = workerData as Reading
parentPort?.postMessage(await readConfig(path, env))
