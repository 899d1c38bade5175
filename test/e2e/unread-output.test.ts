import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { test } from 'node:test'
import { chaosApp, failing, TOKEN } from '../routes/chaos-app.ts'
import { main } from '../support/main.ts'

/** Runs a command whose standard output nobody reads any more, as behind `head` that has seen enough. */
async function unread(args: readonly string[]) {
  const child = spawn(process.execPath, [main, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  // The process has not begun by now, so that all that it writes finds nobody.
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
