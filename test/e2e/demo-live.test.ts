import assert from 'node:assert/strict'
import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { demo } from '../../src/commands/compare/sim/demo.ts'
import { isAlive } from '../support/processes.ts'
import { until } from '../support/until.ts'
import { descendantsOf } from './support/family.ts'
import { cleanUp, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { main } from '../support/main.ts'

after(cleanUp)

/** The demo in its own process, with temporary folders only, so leftovers show. */
async function start(...args: readonly string[]) {
  const home = await newFolder()
  const [temporary, run] = [join(home, 'tmp'), join(home, 'run')]
  for (const folder of [temporary, run]) await mkdir(folder, { mode: 0o700 })
  const env = { TMPDIR: temporary, XDG_RUNTIME_DIR: run, HOME: home, FORCE_COLOR: '0' }
  const program = new Program([main, 'demo', '--live', ...args], { env })
  const left = async () => (await readdir(home, { recursive: true })).sort()
  return { program, left }
}

/** Waits for the first server; returns the demo's child processes. */
async function childrenOf(program: Program): Promise<readonly number[]> {
  await program.line('agents at work', (line) => (line.includes('before: ') ? true : undefined))
  const children = descendantsOf(program.pid)
  assert.ok(children.length > 0)
  return children
}

/** Returns the total of the summary: injected, and its parts. */
function sumIn(lines: readonly string[]): readonly [number, readonly number[]] {
  const said = lines.find((line) => line.startsWith('Injected into calls of agents: ')) ?? ''
  const [injected = NaN, ...parts] = (said.match(/\d+/g) ?? []).map(Number)
  return [injected, parts]
}

const total = (numbers: readonly number[]) => numbers.reduce((sum, number) => sum + number, 0)

const cells = (lines: readonly string[], name: string) =>
  lines.findLast((line) => line.startsWith(`${name} `))?.split(/\s{2,}/) ?? []

// Concurrent, because the tests mostly wait and share no state.
describe('the live demo', { concurrency: 4 }, () => {
  test('the live demo ends by itself, its numbers add up, and it leaves no process and no file', async () => {
    const { program, left } = await start('--duration', '6s')
    const children = await childrenOf(program)
    assert.deepEqual(await program.ended, { code: 0, signal: null }, program.lines.join('\n'))
    const { lines } = program
    const [injected, parts] = sumIn(lines)
    assert.ok(injected > 0)
    assert.equal(parts.length, 5)
    assert.equal(total(parts), injected)
    assert.ok(
      lines.some((line) => /^All \d+ sums add up\.$/.test(line)),
      lines.join('\n'),
    )
    // The tables agree with the total.
    assert.deepEqual(cells(lines, 'all').slice(1).map(Number), [injected, ...parts])
    const calls = ['before', 'during', 'outage', 'after'].map((act) =>
      parseInt(cells(lines, act)[1] ?? '', 10),
    )
    assert.ok(calls.every((count) => count > 0))
    // One task of six calls ran before the first act.
    const counted = lines.find((line) => line.startsWith('The agents counted ')) ?? ''
    assert.equal(parseInt(/\d+/.exec(counted)?.[0] ?? '', 10), total(calls))
    assert.ok(!lines.some((line) => line.includes('\u001b')), 'a pipe gets no terminal codes')
    await until('the children are gone', () => !children.some(isAlive))
    assert.deepEqual(descendantsOf(program.pid), [])
    assert.deepEqual(await left(), ['run', 'tmp'])
  })

  test('without policies no fault is masked, and the numbers add up as well', async () => {
    const { program } = await start('--duration', '6s', '--no-policies')
    assert.deepEqual(await program.ended, { code: 0, signal: null }, program.lines.join('\n'))
    const [injected, [masked, ...others]] = sumIn(program.lines)
    assert.ok(injected > 0)
    assert.equal(masked, 0)
    assert.equal(total(others), injected)
  })

  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    test(`${signal} ends the live demo in order, long before its time, while faults are armed`, async () => {
      const { program, left } = await start('--duration', '40s')
      const children = await childrenOf(program)
      await program.line('faults', (line) => (line.includes('during: ') ? true : undefined))
      program.signal(signal)
      assert.deepEqual(await program.ended, { code: 0, signal: null }, program.lines.join('\n'))
      const { lines } = program
      assert.ok(lines.includes('Stopped early.'))
      assert.ok(!lines.some((line) => line.includes('after: ')))
      const [injected, parts] = sumIn(lines)
      assert.equal(total(parts), injected)
      await until('the children are gone', () => !children.some(isAlive))
      assert.deepEqual(await left(), ['run', 'tmp'])
    })
  }

  test('the live demo refuses to run in production, and names the missing setting', async () => {
    const lines: string[] = []
    const errors: string[] = []
    const out = { stdout: (line: string) => lines.push(line), stderr: (line: string) => errors.push(line) }
    assert.equal(await demo(['--live'], out, { NODE_ENV: 'production' }), 1)
    assert.match(errors.join(), /NODE_ENV/)
    assert.equal(await demo(['--live', '--duration', '1s'], out, {}), 2)
    assert.match(errors.join(), /--duration: expected a duration from 4s/)
    assert.equal(await demo(['--live', '--tasks', '3'], out, {}), 2)
    assert.equal(await demo(['--help'], out, {}), 0)
    assert.match(lines.join('\n'), /--no-policies/)
  })
})
