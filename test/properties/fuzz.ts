import { fileURLToPath } from 'node:url'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { targets } from './targets/index.ts'
import type { Failure } from './target.ts'

/**
 * `npm run test:fuzz`: many cases of each target, with other seeds than `npm test`. Each target ends after its
 * cases or its time. The first failing target ends the run with status 1. Settings from the environment:
 *
 *   FUZZ_RUNS     cases of each target (default 1,000,000)
 *   FUZZ_SECONDS  most time of each target (default 600)
 *   FUZZ_SEED     start of all random draws (default: the time of day; printed)
 *   FUZZ_TARGET   a part of the names of the targets to run (default: all)
 *   FUZZ_PATH     with a seed: the small case printed by a failure
 *
 * Ten million requests, and as many replies, against the parser of Node:
 *
 *   FUZZ_TARGET=llhttp FUZZ_RUNS=10000000 FUZZ_SECONDS=3600 npm run test:fuzz
 */
const { FUZZ_RUNS = '1000000', FUZZ_SECONDS = '600', FUZZ_SEED, FUZZ_TARGET = '', FUZZ_PATH } = process.env

/** Cases between two reports of a worker; each batch has its own seed and can be repeated alone. */
const BATCH = 2_000

/** A worker silent for this long loops forever, in milliseconds. */
const STALL_MS = 120_000

/** Interval of progress lines without a terminal, in milliseconds. */
const PROGRESS_MS = 10_000

interface Job {
  readonly at: number
  readonly seed: number
  readonly runs: number
  readonly seconds: number
  readonly path: string | undefined
}

/** A worker's report: a batch begins, a number of cases have held (and their tally), or a case failed. */
type Report =
  | { readonly began: number }
  | { readonly done: number; readonly tally: string }
  | { readonly failure: Failure }

async function work({ at, seed, runs, seconds, path }: Job): Promise<void> {
  const { check, close, tally, inputs = 1 } = targets[at]!
  const until = performance.now() + 1_000 * seconds
  const tell = (report: Report) => parentPort?.postMessage(report)
  try {
    let batch = Math.ceil(BATCH / inputs / 20)
    for (let done = 0, turn = 0; done < runs && performance.now() < until; turn++) {
      const cases = Math.min(batch, Math.ceil((runs - done) / inputs))
      const batchSeed = (seed + turn) | 0
      tell({ began: batchSeed })
      const since = performance.now()
      const failure = await check({
        seed: batchSeed,
        numRuns: cases,
        ...(path === undefined ? {} : { path }),
      })
      if (failure !== undefined) return tell({ failure })
      if (path !== undefined) return
      tell({ done: (done += cases * inputs), tally: tally?.() ?? '' })
      // About a second each, at any cost of a case.
      const tookMs = performance.now() - since
      if (tookMs < 500) batch = Math.min(2 * batch, BATCH * 10)
    }
  } finally {
    await close?.()
  }
}

/** Runs a target in its own thread, because a hanging target must be ended. Resolves to whether the target held. */
function run(job: Job): Promise<boolean> {
  const { name } = targets[job.at]!
  const since = performance.now()
  const seconds = () => ((performance.now() - since) / 1_000).toFixed(0)
  const again = (seed: number, path?: string) =>
    `  FUZZ_TARGET=${JSON.stringify(name.slice(0, 40))} FUZZ_SEED=${seed}${path === undefined ? '' : ` FUZZ_PATH=${path}`} npm run test:fuzz`
  return new Promise((resolve) => {
    let done = 0
    let tally = ''
    let seed = job.seed
    let held = true
    let printedAt = since
    const worker = new Worker(fileURLToPath(import.meta.url), { workerData: job })
    const fail = (what: string) => {
      held = false
      console.log(`\nFAILED after ${done} cases: ${name}\n${what}`)
    }
    const stalled = () => {
      fail(`no case has come to an end for ${STALL_MS / 1_000} s; again with\n${again(seed)}`)
      void worker.terminate()
    }
    let watch = setTimeout(stalled, STALL_MS)
    worker.on('message', (report: Report) => {
      clearTimeout(watch)
      watch = setTimeout(stalled, STALL_MS)
      if ('began' in report) seed = report.began
      else if ('done' in report) {
        done = report.done
        tally = report.tally === '' ? '' : `, ${report.tally}`
        const isDue = performance.now() - printedAt > PROGRESS_MS
        if (process.stdout.isTTY)
          process.stdout.write(`\r${done} cases, ${seconds()} s: ${name.slice(0, 60)} `)
        else if (isDue) console.log(`${done} cases, ${seconds()} s: ${name}`)
        if (isDue) printedAt = performance.now()
      } else fail(`${report.failure.report}\nagain with\n${again(report.failure.seed, report.failure.path)}`)
    })
    worker.on('error', (error) => fail(`${String(error)}; again with\n${again(seed)}`))
    worker.on('exit', () => {
      clearTimeout(watch)
      if (held)
        console.log(`${process.stdout.isTTY ? '\r' : ''}ok, ${done} cases in ${seconds()} s${tally}: ${name}`)
      resolve(held)
    })
  })
}

if (isMainThread) {
  const seed = FUZZ_SEED === undefined ? Date.now() % 2 ** 31 : Number(FUZZ_SEED)
  console.log(`seed ${seed}, ${FUZZ_RUNS} cases or ${FUZZ_SECONDS} s of each target`)
  const chosen = targets.flatMap(({ name }, at) => (name.includes(FUZZ_TARGET) ? [at] : []))
  if (chosen.length === 0) console.log(`no target is named like ${JSON.stringify(FUZZ_TARGET)}`)
  let held = chosen.length > 0
  for (const at of chosen) {
    if (!held) break
    held = await run({ at, seed, runs: Number(FUZZ_RUNS), seconds: Number(FUZZ_SECONDS), path: FUZZ_PATH })
  }
  process.exitCode = held ? 0 : 1
} else await work(workerData as Job)
