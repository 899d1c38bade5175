import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { compileFunction } from 'node:vm'
import type Bottleneck from 'bottleneck'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'

/** The globals by which bottleneck tells the time, and waits. */
const surroundings = ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'Date']

const made = new WeakMap<Clock, typeof Bottleneck>()

/**
 * bottleneck on a clock of ours, so that simulations and tests own its time as well: the library's own code, as it is installed, in
 * which the timers of the platform are this clock's. Nothing of it keeps the process alive.
 */
export function bottleneckOn(clock: Clock): typeof Bottleneck {
  const known = made.get(clock)
  if (known !== undefined) return known
  const filename = createRequire(import.meta.url).resolve('bottleneck/light.js')
  const load = compileFunction(readFileSync(filename, 'utf8'), ['module', 'exports', ...surroundings], {
    filename,
  }) as (module: { exports: unknown }, exports: unknown, ...timers: unknown[]) => void
  const module = { exports: {} as typeof Bottleneck }
  const after = (task: () => void, ms: Millis = 0): Cancel => clock.after(ms, task)
  const every = (task: () => void, ms: Millis): Cancel => {
    let cancel = clock.after(ms, function again() {
      cancel = clock.after(ms, again)
      task()
    })
    return () => cancel()
  }
  const clear = (cancel?: Cancel) => cancel?.()
  load(module, module.exports, after, clear, every, clear, { now: () => clock.now() })
  made.set(clock, module.exports)
  return module.exports
}
