/**
 * Runs tests by Node's test runner, each file in a separate process.
 *
 *   run.js                   the quick tests: `npm test`
 *   run.js --all             all tests: `npm run test:all`; `--part NAME`, repeatable, runs only some parts
 *   run.js --rest            the tests left out by `npm test`; `--part NAME` adds all tests of that part
 *   run.js FILE…             files by the beginning of their path below `test`
 *   run.js --stress FILE…    ten times each, beside one busy thread for each core: `npm run test:stress`
 *   --bail                   ends with the first failure
 *   --folder FOLDER          folder of the files, for a test of this program; default: `test` as compiled
 *   --second-look LIST       runs a failed file once more at the end; LIST collects the files that passed then
 *
 * A process takes longer to start than most files take to run. So files of the core share a process for each
 * folder, except files with hooks, which would be everybody's hooks, and files that inspect their whole process.
 */
import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { Worker } from 'node:worker_threads'
import { computing, partOf, type Part, parts, quick, QUICK_MINUTES, waiting } from './runner/parts.ts'
import { type Ending, runFile, signalAll } from './runner/process.ts'

/** Processes at a time: two for each core, because most tests from outside wait for half of their time. */
const AT_A_TIME = 2 * availableParallelism()

/** A run with more unstable files than this fails. */
const MAX_UNSTABLE = 3

/** How often `--stress` runs a file. */
const STRESS_RUNS = 10

/** Number of slowest files named at the end. */
const SLOWEST = 10

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    all: { type: 'boolean', default: false },
    rest: { type: 'boolean', default: false },
    part: { type: 'string', multiple: true, default: [] },
    bail: { type: 'boolean', default: false },
    stress: { type: 'boolean', default: false },
    'second-look': { type: 'string' },
    folder: { type: 'string' },
  },
})
const wrongPart = values.part.find((name) => !(name in parts))
if (wrongPart !== undefined)
  fail(`there is no part ${wrongPart}; the parts are: ${Object.keys(parts).join(', ')}`)

const folder = values.folder ?? fileURLToPath(new URL('.', import.meta.url))
const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.test.js') && hasSource(file))
  .sort()

/** Returns false for a compiled file whose source no longer exists. */
function hasSource(file: string): boolean {
  const source = fileURLToPath(new URL(`../../test/${file.replace(/js$/, 'ts')}`, import.meta.url))
  return values.folder !== undefined || existsSync(source)
}

const named = positionals.map((path) => path.replace(/^(build\/)?test\//, '').replace(/\.[jt]s$/, ''))
const listed = [...Object.values(parts).flat(), ...quick.files, ...quick.without]
for (const name of [...(values.folder === undefined ? listed : []), ...named])
  if (!files.some((file) => file.startsWith(name))) fail(`no file of tests begins with ${name}`)

// Every run fails if a file belongs to no part.
for (const file of files) partOf(file)

const isAmong = (file: string, names: readonly string[]) => names.some((name) => file.startsWith(name))
const isQuick = (file: string) => isAmong(file, quick.files) && !isAmong(file, quick.without)
const isQuickRun = !values.all && !values.rest && values.part.length === 0 && named.length === 0
const chosen = files.filter((file) => {
  if (named.length > 0) return isAmong(file, named)
  if (isQuickRun) return isQuick(file)
  if (values.part.includes(partOf(file))) return true
  return values.rest ? !isQuick(file) : values.part.length === 0
})

/** Files of one process, and the path of a module that imports all files. */
interface Item {
  readonly name: string
  readonly path: string
  readonly files: readonly string[]
}

/** A file with this text needs its own process. */
const ALONE =
  /^(before|after)(Each)?\(|\bprocess\.(on|once|emit|env|chdir|getActiveResourcesInfo|memoryUsage)\b|\bheapUsed\b|\.mock\.method\(/m

/** Tests in these folders count the processes that their own process started. */
const apart = ['gateway', 'upstreams']

const alone = (file: string): Item => ({
  name: file.replace(/\.test\.js$/, ''),
  path: join(folder, file),
  files: [file],
})

/**
 * Returns the chosen files as items: files that wait the longest first, computing files last. Files of the core that
 * may share a process are one item per folder.
 */
function itemsOf(chosen: readonly string[]): Item[] {
  const together = mkdtempSync(join(tmpdir(), 'breakwater-tests-'))
  process.once('exit', () => rmSync(together, { recursive: true }))
  const shared = new Map<string, string[]>()
  const items: Item[] = []
  const rank = (file: string) =>
    waiting.includes(partOf(file)) ? 0 : computing.includes(partOf(file)) ? 2 : 1
  for (const file of chosen.toSorted((one, other) => rank(one) - rank(other))) {
    const [name] = file.split('/') as [string]
    if (!parts.core.some((prefix) => file.startsWith(prefix)) || apart.includes(name) || needsProcess(file))
      items.push(alone(file))
    else shared.set(name, [...(shared.get(name) ?? []), file])
  }
  for (const [name, members] of shared) {
    const path = join(together, `${name}.mjs`)
    writeFileSync(
      path,
      members.map((file) => `import '${pathToFileURL(join(folder, file)).href}'\n`).join(''),
    )
    items.push({ name, path, files: members })
  }
  return items
}

function needsProcess(file: string): boolean {
  return ALONE.test(readFileSync(join(folder, file), 'utf8'))
}

/** A part's files, tests and time; the time is the sum over its files. */
interface Tally {
  files: number
  passed: number
  failed: number
  skipped: number
  tookMs: number
}

const total: Tally = { files: 0, passed: 0, failed: 0, skipped: 0, tookMs: 0 }
const byPart = new Map<Part, Tally>()
const skips: string[] = []
const times: [name: string, tookMs: number][] = []

function count(item: Item, { tests, tookMs }: Ending): void {
  const part = partOf(item.files[0]!)
  const tally = byPart.get(part) ?? { files: 0, passed: 0, failed: 0, skipped: 0, tookMs: 0 }
  byPart.set(part, tally)
  times.push([item.name, tookMs])
  for (const sum of [tally, total]) {
    sum.files += item.files.length
    sum.tookMs += tookMs
    for (const { passed, skipped } of tests)
      sum[skipped !== undefined ? 'skipped' : passed ? 'passed' : 'failed']++
  }
  for (const { file, name, skipped } of tests)
    if (skipped !== undefined) skips.push(`${relative(folder, file)}: ${name}: ${skipped || 'no reason'}`)
}

const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`

/** Returns the files of an item with a failed test; the item itself if the process failed without a failed test. */
function failedFiles(item: Item, { tests }: Ending): Item[] {
  const failed = new Set(tests.filter(({ passed }) => !passed).map(({ file }) => relative(folder, file)))
  const known = item.files.filter((file) => failed.has(file))
  return known.length > 0 ? known.map(alone) : [item]
}

async function play(items: readonly Item[]): Promise<Map<Item, Ending>> {
  const failed = new Map<Item, Ending>()
  const left = [...items]
  // Half of the workers take waiting files first, the other half computing files: neither core is idle.
  const worker = async (_: unknown, index: number) => {
    const next = () => (index % 2 === 0 ? left.shift() : left.pop())
    for (let item = next(); item !== undefined; item = next()) {
      const ending = await runFile(item.path, item.name)
      count(item, ending)
      const { failure, tests, tookMs } = ending
      console.log(
        `${failure === null ? 'ok    ' : 'FAILED'} ${item.name}: ${tests.length} tests, ${seconds(tookMs)}`,
      )
      if (failure === null) continue
      console.log(failure)
      failed.set(item, ending)
      if (!values.bail) continue
      left.length = 0
      signalAll('SIGKILL')
    }
  }
  await Promise.all(Array.from({ length: AT_A_TIME }).map(worker))
  return failed
}

/**
 * Runs failed files once more, alone. Files that pass then are unstable: printed with their first output, and noted in
 * `list`, which further runs of the same check share. Returns whether the run may still pass.
 */
async function lookAgain(failed: ReadonlyMap<Item, Ending>, list: string): Promise<boolean> {
  let failsTwice = false
  const unstable: string[] = []
  for (const [item, first] of failed) {
    for (const file of failedFiles(item, first)) {
      const { failure } = await runFile(file.path, `${file.name}.second-look`)
      if (failure === null) {
        unstable.push(`${file.name}\n${first.failure}`)
        appendFileSync(list, `${file.name}\n`)
      } else {
        failsTwice = true
        console.log(`FAILED twice: ${file.name}\n${failure}`)
      }
    }
  }
  if (unstable.length > 0) console.log(`\nunstable:\n${unstable.join('\n')}`)
  const all = existsSync(list) ? readFileSync(list, 'utf8').split('\n').filter(Boolean).length : 0
  if (all > MAX_UNSTABLE) console.log(`${all} files are unstable, more than ${MAX_UNSTABLE}`)
  return !failsTwice && all <= MAX_UNSTABLE
}

/** Runs each file ten times beside threads that keep every core busy. Returns whether all runs passed. */
async function stress(files: readonly string[]): Promise<boolean> {
  const busy = Array.from({ length: availableParallelism() }, () => new Worker('for (;;);', { eval: true }))
  let passes = true
  for (const item of files.map(alone)) {
    let passed = 0
    for (let i = 0; i < STRESS_RUNS; i++) {
      const ending = await runFile(item.path, item.name)
      count(item, ending)
      if (ending.failure === null) passed++
      else console.log(ending.failure)
    }
    console.log(
      `${passed === STRESS_RUNS ? 'ok    ' : 'FAILED'} ${item.name}: ${passed} of ${STRESS_RUNS} runs passed`,
    )
    passes &&= passed === STRESS_RUNS
  }
  await Promise.all(busy.map((thread) => thread.terminate()))
  return passes
}

function summarize(elapsedMs: number): void {
  console.log()
  for (const [part, { files, passed, failed, skipped, tookMs }] of byPart)
    console.log(
      `part ${part}: ${files} files, ${passed + failed + skipped} tests, ${seconds(tookMs)} in their processes`,
    )
  const slowest = times.sort(([, a], [, b]) => b - a).slice(0, SLOWEST)
  console.log(`slowest: ${slowest.map(([name, ms]) => `${name} ${seconds(ms)}`).join(', ')}`)
  for (const skip of skips) console.log(`skipped: ${skip}`)
  console.log(`took ${seconds(elapsedMs)}`)
  console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`)
}

function fail(message: string): never {
  console.error(message)
  process.exit(2)
}

for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.once(name, () => {
    signalAll(name)
    process.exit(1)
  })

if (values.stress && named.length === 0) fail('--stress needs the files to run')

const began = performance.now()
let passes
if (values.stress) passes = await stress(chosen)
else {
  if (isQuickRun)
    console.log(
      `${chosen.length} of ${files.length} files, about ${QUICK_MINUTES} minutes on two cores. Left out: ${quick.leavesOut}. ` +
        '`npm run test:all` runs everything.',
    )
  const failed = await play(itemsOf(chosen))
  const list = values['second-look']
  passes = failed.size === 0 || (list !== undefined && (await lookAgain(failed, list)))
}
summarize(performance.now() - began)
process.exit(passes ? 0 : 1)
