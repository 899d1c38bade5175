import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { test } from 'node:test'

const log = new URL('../../src/telemetry/log.js', import.meta.url).href

/** A process that does this with its log. */
function start(script: string) {
  const program = `const { createLog } = await import(${JSON.stringify(log)}); const log = createLog('info'); ${script}`
  return spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
}

/** What it has written to standard output by its end: the words of each line. */
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

test('a defect that ends the process does not take with it what was logged', async () => {
  const lines = await logged(
    `process.on('uncaughtException', () => process.exit(1)); log.info('last words'); throw new Error('a defect')`,
  )
  assert.deepEqual(lines, ['last words'])
})
