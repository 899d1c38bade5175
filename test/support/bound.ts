import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import type { Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { STARTED_BY } from '../../src/upstreams/stdio/family.ts'

// Tests and benchmarks leave no process behind, even after SIGKILL. The gateway's own supervisor does the work: when a
// test ends, the supervisor reads `/proc` and ends all processes with the test's mark. The supervisor does nothing
// earlier, or tests could not see which processes a gateway leaves.

const supervisor = fileURLToPath(new URL('../../src/upstreams/stdio/supervisor.js', import.meta.url))

/** The first part of our marks. */
const us = randomUUID()

/** The supervisor's input. When our process ends, the system closes this pipe. */
let input: Writable | undefined

/** Returns variables for a process that ends with ours. Descendants inherit the mark, even in other groups. */
export function bound(env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  input ??= startSupervisor()
  const outer = process.env[STARTED_BY]
  return { ...env, [STARTED_BY]: outer === undefined ? `${us}.0` : `${outer} ${us}.0` }
}

/**
 * Ends the process group of `leader` with `leader`, or with our process. For programs like nginx, which overwrite their
 * environment variables.
 */
export function bindGroup(leader: ChildProcess): void {
  const { pid } = leader
  if (pid === undefined) return
  const told = (input ??= startSupervisor())
  told.write(`+ ${pid} ${pid}\n`)
  leader.once('exit', () => told.write(`- ${pid}\n`))
}

/** Neither the supervisor nor its pipe keeps our process from ending. */
function startSupervisor(): Writable {
  const child = spawn(process.execPath, ['--max-semi-space-size=1', supervisor, us], {
    cwd: '/',
    env: {},
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  child.unref()
  const stdin = child.stdin as Writable & { unref(): void }
  stdin.unref()
  return stdin
}
