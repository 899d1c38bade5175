import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { extname } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { bound } from './bound.ts'

/** `contract` uses the official SDK; `raw` is written by hand for behaviour outside the SDK. */
export type Fixture = 'contract' | 'raw'

/** Returns the command of a fixture server; `transport` is its argument. */
export function fixtureCommand(
  fixture: Fixture,
  transport: 'stdio' | 'http' | 'sse',
): { command: string; args: string[] } {
  const extension = extname(import.meta.url)
  const path = fileURLToPath(new URL(`../fixtures/${fixture}-server${extension}`, import.meta.url))
  return { command: process.execPath, args: [path, transport] }
}

/** A fixture server in its own process. */
export interface RunningFixture {
  readonly url: string
  stop(): Promise<void>
}

/** Starts a fixture server on a free port. */
export async function startFixture(fixture: Fixture, transport: 'http' | 'sse'): Promise<RunningFixture> {
  const { command, args } = fixtureCommand(fixture, transport)
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'], env: bound() })
  const exited = once(child, 'exit')
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string]
  return {
    url: line.replace('listening ', ''),
    async stop() {
      child.kill('SIGKILL')
      await exited
    },
  }
}
