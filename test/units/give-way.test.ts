import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { getPriority } from 'node:os'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'

/** Of every thread of this process. */
function nicenesses(): number[] {
  return readdirSync('/proc/self/task').map((thread) => {
    const stat = readFileSync(`/proc/self/task/${thread}/stat`, 'latin1')
    // The second field is a name in brackets and may hold blanks: niceness is field 17 after the name.
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[16])
  })
}

test(
  'only the thread that gives way is nicer than the process',
  { skip: process.platform !== 'linux' && 'only on Linux a thread has a priority of its own' },
  async (t) => {
    const own = getPriority()
    assert.deepEqual(new Set(nicenesses()), new Set([own]))
    const script = `
      import { parentPort } from 'node:worker_threads'
      import { giveWay } from ${JSON.stringify(new URL('../../src/units/give-way.js', import.meta.url).href)}
      giveWay()
      parentPort.on('message', () => undefined)
      parentPort.postMessage('nice')`
    const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(script)}`))
    t.after(() => worker.terminate())
    await once(worker, 'message')
    const changed = nicenesses().filter((niceness) => niceness !== own)
    assert.deepEqual(changed, [Math.min(19, own + 10)])
    assert.equal(getPriority(), own)
  },
)
