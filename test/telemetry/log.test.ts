import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { test } from 'node:test'
import { bound } from '../support/bound.ts'

const log = new URL('../../src/telemetry/log.js', import.meta.url).href

/** Starts a process that runs this script with its log. */
function start(script: string) {
  const program = `const { createLog } = await import(${JSON.stringify(log)}); const log = createLog('info'); ${script}`
  return spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: bound(),
  })
}

/** Returns the messages on standard output, line by line, after the process has ended. */
async function logged(script: string): Promise<string[]> {
  const child = start(script)
  const [output] = await Promise.all([text(child.stdout), once(child, 'exit')])
  const lines = output.split('\n').slice(0, -1)
  return lines.map((line) => (JSON.parse(line) as { msg: string }).msg)
}

const killed = `process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})`

test('lines are written in their order, and none is lost when the process exits', async () => {
  const all = Array.from({ length: 1_000 }, (_, n) => `line ${n}`)
  assert.deepEqual(
    await logged('for (let n = 0; n < 1_000; n++) log.info(`line ${n}`); process.exit(0)'),
    all,
  )
})

test('a warning is written at once, with the lines before it, also when the process is killed right after', async () => {
  assert.deepEqual(await logged(`log.info('before'); log.warn('it goes wrong'); ${killed}`), [
    'before',
    'it goes wrong',
  ])
})

test('a line is written though no other one comes', async () => {
  const child = start(`log.info('alone'); setInterval(() => undefined, 60_000)`)
  const [line] = (await once(child.stdout, 'data')) as [Buffer]
  child.kill()
  await once(child, 'exit')
  assert.match(line.toString(), /"alone"/)
})

test('a defect that ends the process does not lose the log before', async () => {
  const lines = await logged(
    `process.on('uncaughtException', () => process.exit(1)); log.info('last words'); throw new Error('a defect')`,
  )
  assert.deepEqual(lines, ['last words'])
})

test('a process without a log reader goes on, and the log reports its gap to a later reader', async () => {
  const child = start(`
    const line = 'x'.repeat(1_000)
    for (let n = 0; n < 3_000; n++) log.info({ n }, line)
    process.stderr.write('went on')
    process.stdin.once('data', () => {
      log.info('the next one')
      setTimeout(() => process.exit(0), 1_000)
    })`)
  const [said] = (await once(child.stderr, 'data')) as [Buffer]
  assert.equal(said.toString(), 'went on', 'the pipe is full')
  child.stdin.write('go on')
  const [output] = await Promise.all([text(child.stdout), once(child, 'exit')])
  const lines = output
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as { n?: number; msg: string; lost?: number })
  const numbers = lines.flatMap(({ n }) => n ?? [])
  assert.deepEqual(
    numbers,
    [...new Set(numbers)].sort((one, other) => one - other),
    'the remaining lines are whole, once and in order',
  )
  // The limit of waiting lines, plus the pipe's capacity.
  assert.ok(numbers.length >= 900 && numbers.length < 1_300, `${numbers.length} lines`)
  const told = lines.flatMap(({ lost }) => lost ?? [])
  assert.equal(
    told.reduce((sum, lost) => sum + lost, 0),
    3_000 + 1 - numbers.length - lines.filter(({ msg }) => msg === 'the next one').length,
  )
})

test('the last log line is written before the process exits, even with a slow reader', async () => {
  const child = start(
    `for (let n = 0; n < 200; n++) log.info('x'.repeat(1_000)); process.stderr.write('ends'); process.exit(0)`,
  )
  await once(child.stderr, 'data')
  const [output] = await Promise.all([text(child.stdout), once(child, 'exit')])
  assert.equal(output.split('\n').length - 1, 200)
})
