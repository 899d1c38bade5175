import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { EndpointStats, HangPoint } from '../../fixtures/counting/http.ts'
import { type Json, newFolder } from './gateway.ts'
import { Program } from './program.ts'

const script = fileURLToPath(new URL('../../fixtures/counting-server.js', import.meta.url))

export type Era = 'legacy' | 'modern'

/** Endpoints in their own process that count real runs. */
export class CountingServer {
  readonly urls: readonly string[]
  program: Program
  #control: string
  readonly #era: Era

  private constructor(era: Era, program: Program, { urls, control }: Listening) {
    this.#era = era
    this.program = program
    this.urls = urls
    this.#control = control
  }

  static async start(era: Era, endpoints = 1): Promise<CountingServer> {
    const { program, listening } = await launch(
      era,
      Array.from({ length: endpoints }, () => 'new'),
    )
    return new CountingServer(era, program, listening)
  }

  /** Restarts the killed process on the same ports; counts and sessions are lost. */
  async revive(): Promise<void> {
    const { program, listening } = await launch(
      this.#era,
      this.urls.map((url) => new URL(url).host),
    )
    this.program = program
    this.#control = listening.control
  }

  /** Returns the number of runs of each token, over all endpoints. */
  async runs(): Promise<Record<string, number>> {
    return (await fetch(`${this.#control}/runs`)).json() as Promise<Record<string, number>>
  }

  async stats(): Promise<EndpointStats[]> {
    return (await fetch(`${this.#control}/stats`)).json() as Promise<EndpointStats[]>
  }

  async tell(endpoint: number, action: 'up' | 'down' | 'cut' | 'forget'): Promise<void> {
    await fetch(`${this.#control}/endpoint/${endpoint}/${action}`, { method: 'POST' })
  }

  /** From now on the endpoint hangs at these points only. */
  async hang(endpoint: number, points: readonly HangPoint[]): Promise<void> {
    const body = JSON.stringify(points)
    await fetch(`${this.#control}/endpoint/${endpoint}/hang`, { method: 'POST', body })
  }

  /** Sets the duration of a handshake, in milliseconds. */
  async slow(endpoint: number, ms: number): Promise<void> {
    await fetch(`${this.#control}/endpoint/${endpoint}/slow`, { method: 'POST', body: String(ms) })
  }
}

interface Listening {
  readonly urls: string[]
  readonly control: string
}

async function launch(
  era: Era,
  places: readonly string[],
): Promise<{ program: Program; listening: Listening }> {
  const program = new Program([script, 'http', era, ...places])
  const listening = await program.line('the counting server listens', (line) => {
    const json = /^listening (.*)$/.exec(line)?.[1]
    return json === undefined ? undefined : (JSON.parse(json) as Listening)
  })
  return { program, listening }
}

/** A counting server as a child process of the gateway. */
export class CountingProcess {
  readonly entry: Json
  readonly #file: string

  private constructor(era: Era, file: string) {
    this.#file = file
    this.entry = { command: process.execPath, args: [script, 'stdio', era, file] }
  }

  static async prepare(era: Era): Promise<CountingProcess> {
    return new CountingProcess(era, join(await newFolder(), 'ledger'))
  }

  kill(): void {
    const pid = this.#lines('pid').at(-1)
    if (pid === undefined) throw new Error('the counting process has never run')
    try {
      process.kill(Number(pid), 'SIGKILL')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
    }
  }

  runs(): Record<string, number> {
    const runs: Record<string, number> = {}
    for (const token of this.#lines('ran')) runs[token] = (runs[token] ?? 0) + 1
    return runs
  }

  #lines(event: string): string[] {
    return readFileSync(this.#file, 'utf8')
      .split('\n')
      .filter((line) => line.startsWith(`${event} `))
      .map((line) => line.slice(event.length + 1))
  }
}
