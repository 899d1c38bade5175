import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until } from '../support/until.ts'
import { allGone, descendantsOf, identified } from './support/family.ts'
import { killAll, Program } from './support/program.ts'

after(killAll)

const parent = fileURLToPath(new URL('../fixtures/parent.js', import.meta.url))

/** Two families of five, three single processes, and the supervisor. */
const STARTED = 14

for (const { signal, what } of [
  { signal: 'SIGKILL', what: 'is killed' },
  { signal: 'SIGTERM', what: 'exits' },
] as const)
  test(`a test or benchmark that ${what} leaves no process, whether it led a group or ignores SIGTERM`, async () => {
    const program = new Program([parent])
    await until('all processes of the program run', () => descendantsOf(program.pid).length === STARTED)
    const started = identified(descendantsOf(program.pid))
    assert.equal(started.length, STARTED)
    program.signal(signal)
    await allGone(started)
  })

test('a process that has only prepared to start others ends by itself', async () => {
  const { href } = new URL('../support/bound.js', import.meta.url)
  const script = `import { bound } from '${href}'; bound()`
  const program = new Program(['--input-type=module', '--eval', script])
  assert.deepEqual(await program.ended, { code: 0, signal: null })
})
