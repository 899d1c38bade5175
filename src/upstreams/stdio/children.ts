import type { ChildProcessWithoutNullStreams } from 'node:child_process'
import type { AnswerShape, ShapedAnswer, CrashLoop } from '../../mesh/wire-shape.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { type Overlong, repliedId, wholeWords } from '../../protocol/overlong.ts'
import { LogThrottle } from '../../telemetry/log-throttle.ts'
import type { Log } from '../../telemetry/log.ts'
import { AnswerShaper } from '../../wire/shaped-answers.ts'
import { Sequence } from '../pipe/sequence.ts'
import type { PipeEvents, Posting } from '../pipe/pipe.ts'
import { type Conceal, excerptOf } from '../server-words.ts'
import { Complaints, type SpeakingPipe, type StartProcess } from './start.ts'
import { aboutToEnd } from './groups.ts'
import { launch, type Program } from './launch.ts'
import { readLines } from './lines.ts'
import { Outbox } from './outbox.ts'

/** Limits on processes, as named in the metric of refusals. */
export const processLimits = ['processes', 'processes_per_client'] as const

export type ProcessLimit = (typeof processLimits)[number]

/** Suggested retry time, in milliseconds: the end of a session is unknown. */
const RETRY_MS = 5_000

/** Limits on processes; a reload may change all of them. */
export interface ChildrenLimits {
  /** The config key of the limits. */
  readonly key: string
  readonly max: number
  /** Most processes per client; default half of `max`. */
  readonly perClient?: number | undefined
  readonly refused: (limit: ProcessLimit) => void
}

interface Started {
  /** The client; undefined for a process of all clients or of the gateway. */
  readonly client: string | undefined
  /** Undefined until the process runs. */
  child: Child | undefined
}

/** The processes of one server: started one by one, ended together. */
export class Children {
  readonly #program: Program
  readonly #parts: Omit<ChildParts, 'events'>
  readonly #limits: () => ChildrenLimits
  readonly #starting = new Map<Promise<Child>, Started>()
  #crashLoop: CrashLoop | undefined
  #closed = false

  constructor(program: Program, limits: () => ChildrenLimits, parts: Omit<ChildParts, 'events'>) {
    this.#limits = limits
    this.#program = program
    this.#parts = parts
  }

  /** Throws after `close`. */
  assertOpen(): void {
    if (this.#closed) throw gatewayError('shutting_down', 'the server is being stopped')
  }

  /** Throws when the client or the server has too many processes. The gateway's own processes have no limit. */
  assertRoom(client: string | undefined): void {
    if (client === undefined) return
    const { key, max, perClient = Math.max(1, Math.floor(max / 2)) } = this.#limits()
    let own = 0
    for (const started of this.#starting.values()) if (started.client === client) own++
    if (own >= perClient)
      throw this.#full('processes_per_client', `this client (limit ${perClient}, ${key}.perClient)`)
    if (this.size >= max) throw this.#full('processes', `this server (limit ${max}, ${key}.max)`)
  }

  #full(limit: ProcessLimit, whose: string): GatewayError {
    this.#limits().refused(limit)
    const message = `too many processes of ${whose}`
    return gatewayError('overloaded', message, { retryAfterMs: RETRY_MS })
  }

  /** Returns a function for starting processes for a client. */
  startFor(client: string | undefined): StartProcess {
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
    const started: Started = { client, child: undefined }
    this.#starting.set(starting, started)
    const forget = () => this.#starting.delete(starting)
    starting.then((child) => child.gone).then(forget, forget)
    const runs = (child: Child) => {
      started.child = child
      this.#mayCrash(child)
    }
    starting.then(runs, noChild)
    return starting
  }

  /** Number of processes, starting processes included. */
  get size(): number {
    return this.#starting.size
  }

  /** Signals all processes; returns false without processes. */
  signal(name: NodeJS.Signals): boolean {
    for (const [starting, { child }] of this.#starting)
      if (child === undefined) starting.then((started) => started.signal(name), noChild)
      else child.signal(name)
    return this.#starting.size > 0
  }

  crash(loop: CrashLoop): void {
    if (this.#crashLoop === loop) return
    this.#crashLoop = loop
    this.signal(loop.signal)
  }

  #mayCrash(child: Child): void {
    const loop = this.#crashLoop
    if (loop === undefined) return
    if (loop.over.aborted) {
      this.#crashLoop = undefined
      return
    }
    if (loop.afterMs === 0) return void child.signal(loop.signal)
    const cancel = this.#parts.clock.after(loop.afterMs, () => {
      if (!loop.over.aborted) child.signal(loop.signal)
    })
    void child.gone.then(cancel)
  }

  /** Injects bytes as if each process had written them; see `Upstream.write`. */
  write(bytes: Buffer, over: Signal): Promise<void> | undefined {
    const writing = [...this.#starting.values()].flatMap(({ child }) => child?.write(bytes, over) ?? [])
    return writing.length === 0 ? undefined : Promise.all(writing).then(() => undefined)
  }

  /** Ends all processes, starting processes included. Resolves when all are gone. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all(
      [...this.#starting.keys()].map((starting) => starting.then((child) => child.close(), noChild)),
    )
  }
}

function noChild(): void {}

/** Time between end of input and SIGTERM, for servers that end at end of input; in milliseconds. */
const EOF_GRACE_MS = 500

/** Time between SIGTERM and SIGKILL, in milliseconds. */
const TERM_GRACE_MS = 2_000

/** Longest line of standard error logged whole, in bytes, and most lines per second. */
const STDERR_LINE_BYTES = 8 * 1024
const STDERR_PER_SECOND = 200

interface ChildParts {
  /** Longest line of standard output, in bytes; a reload may change the limit. */
  readonly maxReply: () => number
  readonly events: PipeEvents
  readonly clock: Clock
  readonly log: Log
  readonly conceal: Conceal
}

/** A running program as a pipe: texts are lines of its standard input and output. Its end ends its process group. */
class Child implements SpeakingPipe {
  /** Resolves when the process, its group and its pipes are gone. */
  readonly gone: Promise<void>
  readonly #leader: ChildProcessWithoutNullStreams
  readonly #parts: ChildParts
  readonly #outbox: Outbox
  /** Handles output in order: injected bytes go between two lines of the process. */
  readonly #output: Sequence<string | Overlong | Written>
  readonly #answers: AnswerShaper
  readonly #complaints = new Complaints()
  /** Whether the process is stopped (SIGSTOP). */
  #isStopped = false
  #stage: 'running' | 'closing' | 'terminating' | 'killed' = 'running'
  #cancelNext: Cancel | undefined
  /** Whether the group exists. After its end, the group number may belong to other processes. */
  #hasGroup = true
  #isGone = false

  /** `leader` already runs, and leads its own group. */
  constructor(leader: ChildProcessWithoutNullStreams, parts: ChildParts) {
    this.#leader = leader
    this.#parts = parts
    this.#outbox = new Outbox(leader.stdin)
    this.#output = new Sequence((output) =>
      typeof output !== 'string' && 'bytes' in output ? this.#read(output) : this.#take(output),
    )
    this.#answers = new AnswerShaper({
      pass: (line) => this.#output.pass(line),
      instead: (answer) => this.#output.pass({ bytes: bytesOf(answer) }),
    })
    const errorsRead = this.#readErrors().catch(this.#unreadable)
    this.gone = new Promise((resolve) => {
      leader.once('close', (code, signal) => {
        void errorsRead.then(() => {
          this.#gone(code, signal)
          resolve()
        })
      })
    })
    leader.once('exit', () => this.#exited())
    leader.stdin.on('error', () => void this.close())
    void this.#readOutput()
      .catch(this.#unreadable)
      .finally(() => this.close())
  }

  get lastWords(): string | undefined {
    return excerptOf(this.#complaints.told, this.#parts.conceal)
  }

  send(text: string, posting?: Posting): Promise<void> {
    return this.#outbox.send(text, posting)
  }

  shape(id: number, shape: AnswerShape): () => void {
    return this.#answers.add(id, shape)
  }

  /** Injects bytes between two lines of the process; resolves once the bytes are read or dropped. */
  async write(bytes: Buffer, over: Signal): Promise<void> {
    await this.#output.pass({ bytes, over })
  }

  close(): Promise<void> {
    if (this.#stage === 'running') {
      this.#stage = 'closing'
      // A stopped process could not read the end of its input.
      if (this.#isStopped) this.signal('SIGCONT')
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
    // After SIGCONT, a stopped process also gets the SIGTERM, whoever stopped the process.
    this.#signal('SIGCONT')
    this.#later(TERM_GRACE_MS, () => this.#kill())
  }

  /** Kills the whole group, and gives up pipes inherited by processes outside of the group. */
  #kill(): void {
    this.#stage = 'killed'
    this.#signal('SIGKILL')
    for (const stream of this.#leader.stdio) stream?.destroy()
  }

  /** Handles the end of the leader. Its children may still run, and get time to end normally. */
  #exited(): void {
    if (this.#stage === 'running' || this.#stage === 'closing') this.#terminate()
    this.#hasGroup = this.#signal(0)
  }

  #gone(code: number | null, signal: NodeJS.Signals | null): void {
    this.#cancelNext?.()
    this.#signal('SIGKILL')
    this.#isGone = true
    this.#answers.end()
    const how = signal === null ? `exited with code ${code}` : `was ended by ${signal}`
    const error = gatewayError('upstream_disconnected', `the server's process ${how}`, {
      cause: 'process_exit',
    })
    this.#parts.events.closed(error, this.lastWords)
  }

  #later(ms: Millis, task: () => void): void {
    this.#cancelNext?.()
    this.#cancelNext = this.#parts.clock.after(ms, task)
  }

  /** Signals the whole group; returns false without a group. */
  signal(name: NodeJS.Signals): boolean {
    // A process that is about to end must not be stopped.
    if (name === 'SIGSTOP' && this.#stage !== 'running') return false
    if (name === 'SIGSTOP') this.#isStopped = true
    if (name === 'SIGCONT') this.#isStopped = false
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
    return readLines(this.#leader.stdout, this.#parts.maxReply, (line) =>
      typeof line === 'string' ? this.#answers.pass(line) : this.#output.pass(line),
    )
  }

  /** Reads injected bytes. Never rejects. */
  #read({ bytes, over }: Written): Promise<void> {
    const take = (line: string | Overlong) =>
      this.#isGone || over?.aborted === true ? undefined : this.#take(line)
    return readLines([bytes], this.#parts.maxReply, take, this.#leader.stdout).catch(this.#unreadable)
  }

  #take(line: string | Overlong): Promise<void> | undefined {
    const { events, maxReply } = this.#parts
    if (typeof line === 'string') return events.message(line)
    events.overlong(repliedId(line), maxReply())
    return undefined
  }

  #readErrors(): Promise<void> {
    const { clock, log, conceal } = this.#parts
    const throttle = new LogThrottle(clock, STDERR_PER_SECOND)
    return readLines(
      this.#leader.stderr,
      () => STDERR_LINE_BYTES,
      (line) => {
        const { head, tail } = typeof line === 'string' ? { head: line } : wholeWords(line)
        const stderr = tail === undefined ? head : `${head} … ${tail}`
        this.#complaints.add(head)
        throttle.admit((dropped) => log.info({ stderr: conceal(stderr), ...(dropped > 0 && { dropped }) }))
      },
    )
  }

  /** Logs a read error, except after a kill: streams destroyed by Breakwater also end with an error. */
  readonly #unreadable = (error: unknown): void => {
    if (this.#stage !== 'killed') this.#parts.log.error({ err: error }, 'cannot read from the server')
  }
}

/** Bytes injected by a fault. */
interface Written {
  readonly bytes: Buffer
  /** An abort drops all unread bytes. */
  readonly over?: Signal
}

/** Returns the bytes that replace an answer. */
function bytesOf({ before, texts }: ShapedAnswer): Buffer {
  const lines = Buffer.from(texts.map((text) => `${text}\n`).join(''))
  return before === undefined ? lines : Buffer.concat([before, lines])
}
