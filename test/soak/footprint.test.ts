import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { bound } from '../support/bound.ts'
import { heapOf } from './footprint.ts'

const probe = fileURLToPath(new URL('../fixtures/heap-probe.js', import.meta.url))

const FUNCTIONS = 500

/** Makes functions with different numbers, and runs each until V8 compiles it. `keeps`: keep all reachable. */
const program = (keeps: boolean) => `
  const kept = []
  process.on('message', (message) => {
    if (message !== 'make') return
    for (let n = 0; n < ${FUNCTIONS}; n++) {
      const made = new Function('x', 'let sum = ' + n + '; for (let i = 0; i < x; i++) sum += i * x; return sum')
      for (let run = 0; run < 20; run++) made(200)
      if (${keeps}) kept.push(made)
    }
    process.send('made')
  })
  setInterval(() => undefined, 1_000)
  process.send('ready')`

/** Returns the growth of the heap without machine code, in bytes per function made. */
async function grownBy(keeps: boolean): Promise<number> {
  const args = ['--expose-gc', '--import', probe, '--eval', program(keeps)]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'], env: bound() })
  try {
    await once(child, 'message')
    const make = async () => {
      child.send('make')
      await once(child, 'message')
    }
    // V8 caches compiled code for some collections.
    const settled = async () => {
      for (let n = 0; n < 10; n++) await heapOf(child)
      return heapOf(child)
    }
    // The first round warms up.
    await make()
    const before = await settled()
    await make()
    const after = await settled()
    return (after.heapBytes - before.heapBytes) / FUNCTIONS
  } finally {
    child.kill()
  }
}

test('kept functions show in the heap without machine code, and dropped functions do not', async () => {
  const [kept, dropped] = await Promise.all([grownBy(true), grownBy(false)])
  assert.ok(kept > 200, `${kept} bytes for each kept function`)
  assert.ok(dropped < 50, `${dropped} bytes for each dropped function`)
})
