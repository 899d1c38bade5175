import type { ChildProcessWithoutNullStreams } from 'node:child_process'
import type { Readable } from 'node:stream'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Log } from '../telemetry/log.ts'
import { LineReader, type Overlong } from './lines.ts'
import { LogThrottle } from './log-throttle.ts'
import { Outbox } from './outbox.ts'
import { repliedId } from './overlong.ts'
import type { Pipe, PipeEvents, Posting } from './pipe.ts'

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
  readonly #process: ChildProcessWithoutNullStreams
  readonly #parts: ChildParts
  readonly #outbox: Outbox
  #stage: 'running' | 'closing' | 'terminating' | 'killed' = 'running'
  #cancelNext: Cancel | undefined
  #survivors = false

  /** `process` leads a group of its own. */
  constructor(process: ChildProcessWithoutNullStreams, parts: ChildParts) {
    this.#process = process
    this.#parts = parts
    this.#outbox = new Outbox(process.stdin)
    this.gone = new Promise((resolve) => {
      process.once('close', (code, signal) => {
        this.#gone(code, signal)
        resolve()
      })
    })
    process.once('exit', () => this.#exited())
    process.stdin.on('error', () => void this.close())
    void this.#readOutput().finally(() => this.close())
    void this.#readErrors()
  }

  send(text: string, posting?: Posting): Promise<void> {
    return this.#outbox.send(text, posting)
  }

  close(): Promise<void> {
    if (this.#stage === 'running') {
      this.#stage = 'closing'
      this.#outbox.end()
      this.#process.stdin.end()
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
    for (const stream of this.#process.stdio) stream?.destroy()
  }

  /** The leader is gone. What it started may still be there, and gets the time to end in order. */
  #exited(): void {
    if (this.#stage === 'running' || this.#stage === 'closing') this.#terminate()
    this.#survivors = this.#signal(0)
  }

  #gone(code: number | null, signal: NodeJS.Signals | null): void {
    this.#cancelNext?.()
    if (this.#survivors) this.#signal('SIGKILL')
    const how = signal === null ? `exited with code ${code}` : `was ended by ${signal}`
    this.#parts.events.closed(gatewayError('upstream_disconnected', `the server's process ${how}`))
  }

  #later(ms: Millis, task: () => void): void {
    this.#cancelNext?.()
    this.#cancelNext = this.#parts.clock.after(ms, task)
  }

  /** Signals the whole group; false when there is none any more. */
  #signal(signal: NodeJS.Signals | 0): boolean {
    try {
      return process.kill(-(this.#process.pid as number), signal)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH')
        this.#parts.log.warn({ err: error }, 'cannot signal')
      return false
    }
  }

  #readOutput(): Promise<void> {
    const { events, maxReply } = this.#parts
    return this.#read(this.#process.stdout, maxReply, (line) =>
      typeof line === 'string' ? events.message(line) : events.overlong(repliedId(line), maxReply),
    )
  }

  #readErrors(): Promise<void> {
    const throttle = new LogThrottle(this.#parts.clock, STDERR_PER_SECOND)
    return this.#read(this.#process.stderr, STDERR_LINE_BYTES, (line) => {
      const stderr = typeof line === 'string' ? line : `${line.head} … ${line.tail}`
      throttle.admit((dropped) => this.#parts.log.info({ stderr, ...(dropped > 0 && { dropped }) }))
    })
  }

  async #read(
    stream: Readable,
    limit: number,
    take: (line: string | Overlong) => Promise<void> | void,
  ): Promise<void> {
    const lines = new LineReader(limit)
    try {
      for await (const chunk of stream as AsyncIterable<Buffer>) {
        for (const line of lines.feed(chunk)) {
          const taken = take(line)
          if (taken !== undefined) await taken
        }
      }
      for (const line of lines.end()) await take(line)
    } catch (error) {
      // Streams that we destroyed ourselves end with an error.
      if (this.#stage !== 'killed') this.#parts.log.error({ err: error }, 'cannot read from the server')
    }
  }
}
