import type { ChildProcessWithoutNullStreams } from 'node:child_process'
import type { Writable } from 'node:stream'
import { redactShapes } from '../../config/secrets/redact-text.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { LogThrottle } from '../../telemetry/log-throttle.ts'
import type { Log } from '../../telemetry/log.ts'
import { abortError } from '../failure.ts'
import type { Pipe, PipeEvents, Posting } from '../pipe/pipe.ts'
import { Unread } from '../unread.ts'
import { aboutToEnd } from './groups.ts'
import { readLines } from './lines.ts'
import { repliedId } from './overlong.ts'

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

/** How much may wait for one process, calls included. */
const LIMITS = { messages: 4_096, bytes: 32 * 1024 ** 2 }

interface Waiting {
  readonly text: string
  /** Of the text. */
  readonly bytes: number
  readonly posting: Posting
  readonly onAbort: () => void
  readonly resolve: () => void
  readonly reject: (error: GatewayError) => void
}

/**
 * Writes texts to a stream, a line each. While the stream is full they wait here, up to a bound, where an abort takes them
 * back: a server that does not read costs no more memory than what waits for it.
 */
export class Outbox {
  readonly #stream: Writable
  readonly #waiting = new Set<Waiting>()
  readonly #unread = new Unread(LIMITS)
  /** Called when the stream has room again; set while it has none. */
  #resume: (() => void) | undefined
  #over: GatewayError | undefined

  constructor(stream: Writable) {
    this.#stream = stream
    stream.on('drain', () => this.#drained())
  }

  /** Resolves once the stream has room for the next text. */
  send(text: string, posting: Posting = {}): Promise<void> {
    if (this.#over !== undefined) return Promise.reject(this.#over)
    const { signal } = posting
    if (signal?.aborted) return Promise.reject(abortError(signal))
    return new Promise((resolve, reject) => {
      if (this.#resume === undefined) return this.#write({ text, posting, resolve })
      const onAbort = () => {
        this.#waiting.delete(waiting)
        this.#unread.release(bytes)
        reject(abortError(signal as Signal))
      }
      const bytes = this.#unread.admit(text)
      const waiting = { text, bytes, posting, onAbort, resolve, reject }
      signal?.addEventListener('abort', onAbort, { once: true })
      this.#waiting.add(waiting)
    })
  }

  /** Nothing can be written any more. */
  end(error: GatewayError = gatewayError('upstream_disconnected', 'the server reads no more')): void {
    if (this.#over !== undefined) return
    this.#over = error
    this.#resume?.()
    for (const waiting of this.#waiting) {
      waiting.posting.signal?.removeEventListener('abort', waiting.onAbort)
      waiting.reject(error)
    }
    this.#waiting.clear()
  }

  #drained(): void {
    this.#resume?.()
    this.#resume = undefined
    for (const waiting of this.#waiting) {
      if (this.#resume !== undefined) return
      this.#waiting.delete(waiting)
      this.#unread.release(waiting.bytes)
      waiting.posting.signal?.removeEventListener('abort', waiting.onAbort)
      this.#write(waiting)
    }
  }

  #write({ text, posting, resolve }: Pick<Waiting, 'text' | 'posting' | 'resolve'>): void {
    posting.onWrite?.()
    if (this.#stream.write(lineOf(text))) resolve()
    else this.#resume = resolve
  }
}

/** A line break may stand between the tokens of a JSON text, never inside one: a space is as good. */
function lineOf(text: string): string {
  return `${/[\r\n]/.test(text) ? text.replace(/[\r\n]+/g, ' ') : text}\n`
}
