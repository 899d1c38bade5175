import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** V8's CPU profile, as `--cpu-prof` writes profiles; times in microseconds. */
interface Profile {
  readonly nodes: readonly {
    readonly id: number
    readonly callFrame: { functionName: string; url: string }
  }[]
  readonly startTime: number
  readonly samples: readonly number[]
  readonly timeDeltas: readonly number[]
}

const TOP = 15
const INTERVAL_MICROS = 500

/** `src`, a package, `node`, or V8's own word with its brackets. */
const ORIGIN = /^(\([^)]*\)|@[^/]+\/[^/]+|[^:/]+)/

/** Returns flags that make node write `name`'s profile into `folder` on exit. */
export function profiling(folder: string, name: string): string[] {
  return [
    '--cpu-prof',
    `--cpu-prof-dir=${folder}`,
    `--cpu-prof-name=${name}.cpuprofile`,
    `--cpu-prof-interval=${INTERVAL_MICROS}`,
  ]
}

/** The monotonic clock in microseconds, which V8's profiles use in all processes. */
export function profilerNow(): number {
  return Number(process.hrtime.bigint() / 1_000n)
}

/**
 * Returns self time by origin and by file, largest first, from `since` on: earlier samples are start-up.
 * `microsPerCall` is the CPU per call, divided by samples.
 */
export function selfTimes(folder: string, name: string, since: number, microsPerCall: number): string {
  const profile = JSON.parse(readFileSync(join(folder, `${name}.cpuprofile`), 'utf8')) as Profile
  const places = new Map(profile.nodes.map(({ id, callFrame }) => [id, placeOf(callFrame)]))
  const files = new Map<string, number>()
  const origins = new Map<string, number>()
  let now = profile.startTime
  let total = 0
  profile.samples.forEach((node, sample) => {
    const delta = profile.timeDeltas[sample] ?? 0
    now += delta
    const place = places.get(node) ?? '(unknown)'
    if (now < since || place === '(idle)') return
    add(files, place, delta)
    add(origins, ORIGIN.exec(place)?.[0] ?? place, delta)
    total += delta
  })
  const line = ([place, spent]: [string, number]) => {
    const share = spent / total
    return `${(share * microsPerCall).toFixed(1).padStart(8)} µs  ${(share * 100).toFixed(1).padStart(5)} %  ${place}`
  }
  return [...most(origins).map(line), '', ...most(files).map(line)].join('\n')
}

function add(sums: Map<string, number>, key: string, amount: number): void {
  sums.set(key, (sums.get(key) ?? 0) + amount)
}

function most(sums: ReadonlyMap<string, number>): [string, number][] {
  return [...sums].sort(([, left], [, right]) => right - left).slice(0, TOP)
}

/** `src/mesh/compile.js`, `undici/lib/core/util.js`, `node:net`; V8's words in brackets for code without a file. */
function placeOf({ url, functionName }: { url: string; functionName: string }): string {
  if (url === '') return functionName.startsWith('(') ? functionName : `(native) ${functionName}`
  // Packages have folders of this name as well.
  return url.replace(/^file:.*\/node_modules\//, '').replace(/^file:.*\/(?=src\/|bench\/)/, '')
}
