import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { openSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { bound } from '../support/bound.ts'
import { until } from '../support/until.ts'
import { pythonFor, QUICKSTART, readCommands, withNewerPackage } from './commands.ts'

// Runs by itself (`npm run docs:commands`): the commands and programs of README and of all pages, as written, in a
// clone of the last commit, at the ports named there. First the two commands of the quickstart, then the others in
// parallel.

const INSTALL_LIMIT_MS = 600_000
const BLOCKS_LIMIT_MS = 300_000

const run = promisify(execFile)
const root = fileURLToPath(new URL('../../..', import.meta.url))

/** The ports of the pages. */
const ports = [8080, 8081, 3001]

async function isTaken(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  return once(socket, 'connect')
    .then(
      () => true,
      () => false,
    )
    .finally(() => socket.destroy())
}

/** Returns whether all servers of the quickstart are up. */
async function areUp(): Promise<boolean> {
  const reply = await fetch('http://127.0.0.1:8080/readyz').catch(() => undefined)
  if (reply?.ok !== true) return false
  const { servers } = (await reply.json()) as { servers: Readonly<Record<string, string>> }
  return Object.values(servers).every((state) => state === 'up')
}

async function main(scratch: string): Promise<void> {
  for (const port of ports)
    assert.ok(!(await isTaken(port)), `somebody has port ${port}, which the pages use`)
  const clone = join(scratch, 'clone')
  await run('git', ['clone', '--quiet', root, clone])
  // `npm ci` would follow a committed link of this name and empty the linked folder.
  assert.ok(!(await readdir(clone)).includes('node_modules'), 'node_modules is committed')
  // Files of the commands go to the scratch folder.
  const own = { XDG_RUNTIME_DIR: join(scratch, 'run'), TMPDIR: join(scratch, 'tmp') }
  for (const folder of Object.values(own)) await mkdir(folder)
  const env = bound({ ...process.env, ...own })
  process.chdir(clone)
  const { typed, leftOut, ts, python } = await readCommands()

  const log = openSync(join(scratch, 'quickstart.log'), 'w')
  let before = performance.now()
  const quickstart = spawn('bash', ['-c', QUICKSTART], {
    detached: true,
    stdio: ['ignore', log, log],
    env,
  })
  const ended = once(quickstart, 'close')
  try {
    await until(
      'all servers of the quickstart are up',
      () => {
        if (quickstart.exitCode !== null) throw new Error(`${QUICKSTART} ended with ${quickstart.exitCode}`)
        return areUp()
      },
      INSTALL_LIMIT_MS,
    )
    const done = (what: string) => {
      const now = performance.now()
      console.log(`✓ ${what}, ${Math.round((now - before) / 1_000)} s`)
      before = now
    }
    done(`README.md: ${QUICKSTART.trim()}`)

    for (const { page, script, prints } of typed) {
      const text = `set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n${script}`
      const limits = { cwd: clone, env, maxBuffer: 2 ** 24, timeout: BLOCKS_LIMIT_MS }
      const { stdout, stderr } = await run('bash', ['-c', text], limits)
      for (const words of prints) assert.match(stdout + stderr, words, page)
      done(`${page}: ${script.trim().split('\n').length} lines`)
    }

    const interpreter = await pythonFor(process.env)
    const programs = [
      ...ts
        .flatMap((text) => [text, withNewerPackage(text)])
        .map((text) => ({ command: process.execPath, name: 'program.mjs', text })),
      ...(interpreter === undefined ? [] : python).map((text) => ({
        command: interpreter as string,
        name: 'program.py',
        text,
      })),
    ]
    for (const { command, name, text } of programs) {
      await writeFile(join(clone, name), text)
      const { stdout } = await run(command, [name], { cwd: clone, env, timeout: BLOCKS_LIMIT_MS })
      assert.match(stdout, /Echo: hello/, text)
    }
    done(`${programs.length} programs of docs/connect.md`)

    for (const one of leftOut) console.log(`- not run: ${one}`)
    if (interpreter === undefined)
      console.log('- not run: programs in Python: no Python with version 2 of mcp, see .ci/python.sh')
  } finally {
    process.kill(-(quickstart.pid as number), 'SIGTERM')
    await ended
  }
  // npm ends at once; the gateway ends a moment later.
  for (const port of ports)
    await until(`port ${port} is free after the end`, async () => !(await isTaken(port)))
}

const scratch = await mkdtemp(join(tmpdir(), 'breakwater-commands-'))
try {
  await main(scratch)
  process.chdir(root)
  await rm(scratch, { recursive: true })
} catch (error) {
  console.error(error)
  const log = await readFile(join(scratch, 'quickstart.log'), 'utf8').catch(() => '')
  console.error(log.split('\n').slice(-20).join('\n'))
  console.error(`Left there to be looked at: ${scratch}`)
  process.exitCode = 1
}
