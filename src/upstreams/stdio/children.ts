import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import type { StdioServerConfig } from '../../config/schema/server-schema.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Log } from '../../telemetry/log.ts'
import type { Connect, PipeEvents } from '../pipe/pipe.ts'
import { Child, type ChildParts } from './child.ts'
import { placeUnderUs } from './groups.ts'

/** Limits on processes, as the metric of refusals names them. */
export const processLimits = ['processes', 'processes_per_client'] as const

export type ProcessLimit = (typeof processLimits)[number]

/** When to try again, in milliseconds: nobody knows when a session ends. */
const RETRY_MS = 5_000

interface ChildrenLimits {
  /** Where the config has them. */
  readonly key: string
  readonly max: number
  /** Of them for one client; half unless given. */
  readonly perClient?: number | undefined
  /** Told of each refusal. */
  readonly refused: (limit: ProcessLimit) => void
}

/** The processes of one server: started one by one, ended together. */
export class Children {
  readonly #program: Program
  readonly #parts: Omit<ChildParts, 'events'>
  readonly #limits: ChildrenLimits
  /** For which client each is; undefined: for all of them, or for the gateway itself. */
  readonly #starting = new Map<Promise<Child>, string | undefined>()
  #closed = false

  constructor(program: Program, limits: ChildrenLimits, parts: Omit<ChildParts, 'events'>) {
    this.#limits = limits
    this.#program = program
    this.#parts = parts
  }

  /** Why nothing is started any more: throws that, once `close` was called. */
  assertOpen(): void {
    if (this.#closed) throw gatewayError('shutting_down', 'the server is being stopped')
  }

  /** Why a client may not have one more process: throws that. What the gateway starts for itself is never too much. */
  assertRoom(client: string | undefined): void {
    if (client === undefined) return
    const { key, max, perClient = Math.max(1, Math.floor(max / 2)) } = this.#limits
    let own = 0
    for (const owner of this.#starting.values()) if (owner === client) own++
    if (own >= perClient)
      throw this.#full('processes_per_client', `this client (${own} of ${perClient}; ${key}.perClient)`)
    if (this.size >= max) throw this.#full('processes', `this server (${this.size} of ${max}; ${key}.max)`)
  }

  #full(limit: ProcessLimit, whose: string): GatewayError {
    this.#limits.refused(limit)
    const message = `too many processes of ${whose}`
    return gatewayError('overloaded', message, { retryAfterMs: RETRY_MS })
  }

  /** Starts processes for a client. */
  startFor(client: string | undefined): Connect {
    return (events) => {
      this.assertRoom(client)
      return this.#start(events, client)
    }
  }

  async #start(events: PipeEvents, client: string | undefined): Promise<Child> {
    this.assertOpen()
    const starting = launch(this.#program, this.#parts.log).then(
      (leader) => new Child(leader, { ...this.#parts, events }),
    )
    this.#starting.set(starting, client)
    const forget = () => this.#starting.delete(starting)
    starting.then((child) => child.gone).then(forget, forget)
    return starting
  }

  /** How many there are, with those that are being started. */
  get size(): number {
    return this.#starting.size
  }

  /** Signals all of them; false when there are none. */
  signal(name: NodeJS.Signals): boolean {
    for (const starting of this.#starting.keys()) void starting.then((child) => child.signal(name), noChild)
    return this.#starting.size > 0
  }

  /** Ends all of them, also those that are being started. Resolves when nothing is left. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all(
      [...this.#starting.keys()].map((starting) => starting.then((child) => child.close(), noChild)),
    )
  }
}

function noChild(): void {}

type Program = Pick<StdioServerConfig, 'command' | 'args' | 'env' | 'cwd'>

/** Starts a program as the leader of a process group of its own. Rejects with a `GatewayError`. */
function launch(program: Program, log: Log): Promise<ChildProcessWithoutNullStreams> {
  const { command, args, env, cwd } = program
  return new Promise((resolve, reject) => {
    try {
      const place = placeUnderUs(log)
      const child = spawn(command, args, {
        cwd,
        env: { ...childEnv(process.env, env), ...place.env },
        detached: true,
        stdio: ['pipe', 'pipe', 'pipe'],
        windowsHide: true,
      })
      if (child.pid !== undefined) place.taken(child)
      child.once('spawn', () => resolve(child))
      child.on('error', (error) => reject(launchError(program, error)))
    } catch (error) {
      reject(launchError(program, error as Error))
    }
  })
}

function launchError({ command, cwd }: Program, error: Error & { code?: string }): GatewayError {
  const where = cwd === undefined ? '' : ` in ${cwd}`
  return gatewayError(
    'upstream_unavailable',
    `cannot start ${command}${where} (${error.code ?? error.message})`,
  )
}

/**
 * What a server inherits of our own environment: who and where it is, and how it speaks to people. Nothing
 * that may hold a secret, so neither proxies (their URLs carry passwords) nor settings of package managers;
 * a server that needs those names them in its own `env`.
 */
const inherited = [
  'HOME',
  'LANG',
  'LC_ALL',
  'LC_CTYPE',
  'LOGNAME',
  'PATH',
  'SHELL',
  'TERM',
  'TMPDIR',
  'TZ',
  'USER',
] as const

/** The environment of a child process: the safe part of ours, and what is configured on top of it. */
export function childEnv(
  own: NodeJS.ProcessEnv,
  configured: Readonly<Record<string, string>>,
): Record<string, string> {
  const env: Record<string, string> = {}
  for (const name of inherited) {
    const value = own[name]
    // A value that begins so is an exported shell function, which a shell would run.
    if (value !== undefined && !value.startsWith('()')) env[name] = value
  }
  return { ...env, ...configured }
}
