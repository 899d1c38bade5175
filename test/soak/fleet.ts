import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { descendantsOf } from '../e2e/support/family.ts'
import type { Json } from '../e2e/support/gateway.ts'
import { Program } from '../e2e/support/program.ts'
import { pick } from '../support/random.ts'

const script = fileURLToPath(new URL('./server.js', import.meta.url))

/** A server process behind HTTP; can crash and return on the same port. */
class Replica {
  program: Program | undefined
  readonly #era: 'legacy' | 'modern'
  readonly #file: string
  #port = 0

  constructor(era: 'legacy' | 'modern', file: string) {
    this.#era = era
    this.#file = file
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}/mcp`
  }

  async start(): Promise<void> {
    const program = new Program([script, 'http', this.#era, this.#file, String(this.#port)])
    this.program = program
    this.#port = await program.line('the server listens', (line) => {
      const port = /^listening (\d+)$/.exec(line)?.[1]
      return port === undefined ? undefined : Number(port)
    })
  }

  async crash(): Promise<void> {
    await this.program?.kill()
    this.program = undefined
  }
}

/**
 * All servers of a soak: one of each era behind HTTP, one with two replicas, one shared process, and one process per
 * session.
 */
export class Fleet {
  /** Servers that agents of each era may call. */
  static readonly names = ['old', 'new', 'pool', 'local', 'own'] as const
  readonly #file: string
  readonly #replicas: { readonly old: Replica; readonly new: Replica; readonly pool: readonly Replica[] }
  /** Server processes killed so far. */
  crashes = 0

  private constructor(file: string) {
    this.#file = file
    const replica = (era: 'legacy' | 'modern') => new Replica(era, file)
    this.#replicas = {
      old: replica('legacy'),
      new: replica('modern'),
      pool: [replica('legacy'), replica('legacy')],
    }
  }

  static async start(folder: string): Promise<Fleet> {
    const fleet = new Fleet(join(folder, 'runs'))
    await Promise.all(fleet.#all.map((replica) => replica.start()))
    return fleet
  }

  get #all(): readonly Replica[] {
    return [this.#replicas.old, this.#replicas.new, ...this.#replicas.pool]
  }

  /** Returns the block `mcpServers`. `turn` counts reloads; only its parity matters, except for `own`. */
  entries(turn: number): Record<string, Json> {
    const stdio = { command: process.execPath, args: [script, 'stdio', 'legacy', this.#file] }
    const isOdd = turn % 2 === 1
    return {
      old: { url: this.#replicas.old.url, trusted: true },
      new: { url: this.#replicas.new.url, trusted: true },
      pool: { urls: this.#replicas.pool.map(({ url }) => url), trusted: true, refresh: isOdd ? '1m' : '2m' },
      local: { ...stdio, trusted: true },
      // The environment changes every other reload, so all of its processes restart.
      own: { ...stdio, trusted: true, sharing: 'per_session', env: { TURN: String((turn >> 1) % 2) } },
      ...(isOdd ? { passing: { ...stdio, trusted: true } } : {}),
    }
  }

  /** Kills a server, or a process started by the gateway; a server restarts after `away` resolves. */
  async crashOne(random: () => number, gatewayPid: number, away: () => Promise<void>): Promise<void> {
    this.crashes++
    if (random() < 0.4) {
      const pids = descendantsOf(gatewayPid).filter(isServer)
      if (pids.length > 0) kill(pick(random, pids))
      return
    }
    const replica = pick(random, this.#all)
    await replica.crash()
    await away()
    await replica.start()
  }

  /** Returns the number of runs of each token, over all servers and all their restarts. */
  runs(): Map<string, number> {
    const runs = new Map<string, number>()
    for (const line of readFileSync(this.#file, 'utf8').split('\n')) {
      if (line.startsWith('ran ')) runs.set(line.slice(4), (runs.get(line.slice(4)) ?? 0) + 1)
    }
    return runs
  }
}

function isServer(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes(script)
  } catch {
    // The process ended meanwhile.
    return false
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
