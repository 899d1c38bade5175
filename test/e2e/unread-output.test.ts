import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, existsSync, openSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { chaosApp, failing, TOKEN } from '../routes/chaos-app.ts'
import { bound } from '../support/bound.ts'
import { main } from '../support/main.ts'
import { cleanUp, Gateway } from './support/gateway.ts'

/** Runs a command whose standard output is closed, as behind a `head` that has exited. */
async function unread(args: readonly string[]) {
  const child = spawn(process.execPath, [main, ...args], { stdio: ['ignore', 'pipe', 'pipe'], env: bound() })
  // The process has not started yet, so none of its output has a reader.
  child.stdout.destroy()
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, stderr }
}

test('a command whose output nobody reads ends quietly', async (context) => {
  const faults = Array.from({ length: 200 }, (_, n) => failing(`fault-${n}`))
  const { app } = chaosApp({ config: { faults } })
  const control = await app.listen({ host: '127.0.0.1', port: 0 })
  context.after(() => app.close())
  const access = ['--control', control, '--token', TOKEN]
  for (const args of [
    ['--help'],
    ['chaos', '--help'],
    ['chaos', 'status', ...access],
    ['chaos', 'status', '--json', ...access],
    ['chaos', 'plan', ...access],
    ['scenario', 'list'],
    ['validate', '--config', 'config/gateway.yaml'],
    ['proxy', '--help'],
  ]) {
    assert.deepEqual(await unread(args), { code: 0, stderr: '' }, args.join(' '))
  }
})

test('a command that goes on ends when nobody reads what it says', async (context) => {
  const gateway = await Gateway.start({ servers: {} })
  context.after(cleanUp)
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-unread-'))
  context.after(() => rm(folder, { recursive: true }))
  const log = join(folder, 'log')
  await writeFile(log, '{"level":30,"msg":"one"}\n')
  const end = { code: 0, stderr: '' }
  assert.deepEqual(await unread(['logs', '--follow', log]), end)
  const access = ['--control', gateway.control, '--token', gateway.token]
  assert.deepEqual(await unread(['status', '--watch', '--every', '500ms', ...access]), end)
})

test('a disk that is full under the standard output is told in words', (context) => {
  if (!existsSync('/dev/full')) return context.skip('there is no /dev/full')
  const full = openSync('/dev/full', 'w')
  context.after(() => closeSync(full))
  const { status, stderr } = spawnSync(process.execPath, [main, 'help'], { stdio: ['ignore', full, 'pipe'] })
  assert.deepEqual([status, String(stderr)], [1, 'breakwater: standard output: the disk is full\n'])
})
