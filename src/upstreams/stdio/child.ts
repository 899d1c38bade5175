import type { ChildProcessWithoutNullStreams } from 'node:child_process'
import { redactShapes } from '../../config/secrets/redact-text.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Log } from '../../telemetry/log.ts'
import { aboutToEnd } from './groups.ts'
import { readLines } from './lines.ts'
import { LogThrottle } from '../../telemetry/log-throttle.ts'
import { Outbox } from './outbox.ts'
import { repliedId } from './overlong.ts'
import type { Pipe, PipeEvents, Posting } from '../pipe/pipe.ts'

/** Between the end of its input and SIGTERM, for a server that ends by itself then; in milliseconds. */
const EOF_GRACE_MS = 500

/** Between SIGTERM and SIGKILL, in milliseconds. */
const TERM_GRACE_MS = 2_000

/** Longest line of standard error that is logged as a whole, in bytes, and how many lines a second. */
const STDERR_LINE_BYTES = 8 * 1024
const STDERR_PER_SECOND = 200

export interface ChildParts {
  /** Longest line of standard output, in bytes. */
  readonly maxReply: number
  readonly events: PipeEvents
  readonly clock: Clock
  readonly log: Log
}

/**
 * A running program as a pipe: texts are lines of its standard input and output. However it ends, it takes
 * its whole process group along.
 */
export class Child implements Pipe {
  /** Resolves when the process is gone, and its group, and its pipes. */
  readonly gone: Promise<void>
  readonly #leader: ChildProcessWithoutNullStreams
  readonly #parts: ChildParts
  readonly #outbox: Outbox
  #stage: 'running' | 'closing' | 'terminating' | 'killed' = 'running'
  #cancelNext: Cancel | undefined
  /** Whether there is anybody to signal. Its number may mean somebody else once the group is gone. */
  #hasGroup = true

  /** `leader` runs already, and leads a group of its own. */
  constructor(leader: ChildProcessWithoutNullStreams, parts: ChildParts) {
    this.#leader = leader
    this.#parts = parts
    this.#outbox = new Outbox(leader.stdin)
    this.gone = new Promise((resolve) => {
      leader.once('close', (code, signal) => {
        this.#gone(code, signal)
        resolve()
      })
    })
    leader.once('exit', () => this.#exited())
    leader.stdin.on('error', () => void this.close())
    void this.#readOutput()
      .catch(this.#unreadable)
      .finally(() => this.close())
    void this.#readErrors().catch(this.#unreadable)
  }

  send(text: string, posting?: Posting): Promise<void> {
    return this.#outbox.send(text, posting)
  }

  close(): Promise<void> {
    if (this.#stage === 'running') {
      this.#stage = 'closing'
      aboutToEnd(this.#leader)
      this.#outbox.end()
      this.#leader.stdin.end()
      this.#later(EOF_GRACE_MS, () => this.#terminate())
    }
    return this.gone
  }

  #terminate(): void {
    this.#stage = 'terminating'
    this.#outbox.end()
    this.#signal('SIGTERM')
    this.#later(TERM_GRACE_MS, () => this.#kill())
  }

  /** Nothing of the group survives this, and pipes that left the group with somebody are given up. */
  #kill(): void {
    this.#stage = 'killed'
    this.#signal('SIGKILL')
    for (const stream of this.#leader.stdio) stream?.destroy()
  }

  /** The leader is gone. What it started may still be there, and gets the time to end in order. */
  #exited(): void {
    if (this.#stage === 'running' || this.#stage === 'closing') this.#terminate()
    this.#hasGroup = this.#signal(0)
  }

  #gone(code: number | null, signal: NodeJS.Signals | null): void {
    this.#cancelNext?.()
    this.#signal('SIGKILL')
    const how = signal === null ? `exited with code ${code}` : `was ended by ${signal}`
    this.#parts.events.closed(gatewayError('upstream_disconnected', `the server's process ${how}`))
  }

  #later(ms: Millis, task: () => void): void {
    this.#cancelNext?.()
    this.#cancelNext = this.#parts.clock.after(ms, task)
  }

  /** Signals the whole group; false when there is none any more. */
  signal(name: NodeJS.Signals): boolean {
    return this.#signal(name)
  }

  #signal(signal: NodeJS.Signals | 0): boolean {
    if (!this.#hasGroup) return false
    try {
      return process.kill(-(this.#leader.pid as number), signal)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH')
        this.#parts.log.warn({ err: error }, 'cannot signal')
      return false
    }
  }

  #readOutput(): Promise<void> {
    const { events, maxReply } = this.#parts
    return readLines(this.#leader.stdout, maxReply, (line) =>
      typeof line === 'string' ? events.message(line) : events.overlong(repliedId(line), maxReply),
    )
  }

  #readErrors(): Promise<void> {
    const { clock, log } = this.#parts
    const throttle = new LogThrottle(clock, STDERR_PER_SECOND)
    return readLines(this.#leader.stderr, STDERR_LINE_BYTES, (line) => {
      const stderr = typeof line === 'string' ? line : `${line.head} … ${line.tail}`
      throttle.admit((dropped) => log.info({ stderr: redactShapes(stderr), ...(dropped > 0 && { dropped }) }))
    })
  }

  /** Streams that we destroyed ourselves end with an error, too. */
  readonly #unreadable = (error: unknown): void => {
    if (this.#stage !== 'killed') this.#parts.log.error({ err: error }, 'cannot read from the server')
  }
}
