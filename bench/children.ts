import { fork, spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { systemClock } from '../src/mesh/clock.ts'
import { bindGroup, bound } from '../test/support/bound.ts'

export interface Listening {
  readonly pid: number
  /** Such as `http://127.0.0.1:40123`. */
  readonly origin: string
  /** Origin of a gateway's control plane. */
  readonly control: string
  readonly child: ChildProcess
}

const KILL_AFTER_MS = 5_000

/** Standard error kept to report a process that ended too early. */
const KEPT_CHARS = 4_000

/** pino's lowest level for shown lines. */
const WARN = 40

/** Every process of a run. All end with the run. */
export class Children {
  readonly #running = new Set<ChildProcess>()
  readonly #lost: (error: Error) => void
  #ending = false

  /** `lost` gets the error of a process that ends too early. */
  constructor(lost: (error: Error) => void) {
    this.#lost = lost
  }

  /** Waits for node's `listening` log line. `channel` adds an IPC channel; `quiet` hides warnings. */
  listening(args: readonly string[], { channel = false, quiet = false } = {}): Promise<Listening> {
    const stdio = ['ignore', 'pipe', 'pipe', ...(channel ? ['ipc' as const] : [])] as const
    const child = spawn(process.execPath, args, { stdio: [...stdio], env: bound() })
    // Standard error also holds greetings, so its text is shown only after a failure.
    let said = ''
    child.stderr!.on('data', (chunk: Buffer) => (said = (said + String(chunk)).slice(-KEPT_CHARS)))
    this.#keep(child, () => said)
    return new Promise((resolve) => {
      createInterface({ input: child.stdout! }).on('line', (line) => {
        const { msg, data, control, level } = read(line)
        if (msg === 'listening' && child.pid !== undefined)
          resolve({ pid: child.pid, origin: String(data), control: String(control), child })
        else if (Number(level) >= WARN && !quiet) process.stderr.write(`${line}\n`)
      })
    })
  }

  /** Starts node on `script`, with a channel for messages. */
  fork(script: string): ChildProcess {
    const child = fork(script, { env: bound() })
    this.#keep(child)
    return child
  }

  /** Starts a program without a ready signal. Returns its process id. Only `lost` hears of an early end. */
  program(
    command: string,
    args: readonly string[],
    env: NodeJS.ProcessEnv,
    lost: (error: Error) => void,
  ): number {
    const child = spawn(command, args, {
      env: bound(env),
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    bindGroup(child)
    let said = ''
    child.stderr.on('data', (chunk: Buffer) => (said = (said + String(chunk)).slice(-KEPT_CHARS)))
    child.once('error', lost)
    this.#keep(child, () => said, lost)
    return child.pid ?? -1
  }

  /** Asks all processes to end, and kills the rest after 5 s. */
  async end(): Promise<void> {
    this.#ending = true
    const ends = [...this.#running].map((child) => once(child, 'close'))
    for (const child of this.#running) child.kill('SIGTERM')
    const cancel = systemClock.after(KILL_AFTER_MS, () => {
      for (const child of this.#running) child.kill('SIGKILL')
    })
    await Promise.all(ends)
    cancel()
  }

  #keep(child: ChildProcess, said = () => '', lost = this.#lost): void {
    // A process started during `end` was not asked to end, and is killed.
    if (this.#ending) child.kill('SIGKILL')
    this.#running.add(child)
    child.once('close', (code, signal) => {
      this.#running.delete(child)
      if (!this.#ending)
        lost(new Error(`ended with ${code ?? signal}: ${child.spawnargs.join(' ')}\n${said()}`))
    })
  }
}

function read(line: string): { msg?: unknown; data?: unknown; control?: unknown; level?: unknown } {
  return line.startsWith('{') ? (JSON.parse(line) as object) : {}
}
