import { Cancellation, type Signal } from '../../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { formatDuration, roundedDuration } from '../../units/duration.ts'
import { whenAborted } from '../failure.ts'
import type { Connect, Pipe, PipeEvents } from '../pipe/pipe.ts'
import type { StartLimits } from '../upstream.ts'
import { clipWords } from '../../units/recent.ts'

/** A pipe to a process whose latest error output is known. */
export interface SpeakingPipe extends Pipe {
  /**
   * The line of its standard error that most likely explains its end, quoted and without secrets; undefined without
   * output.
   */
  readonly lastWords: string | undefined
}

export type StartProcess = (...given: Parameters<Connect>) => Promise<SpeakingPipe>

/**
 * Learns from successful starts how long a program takes: a slow program is slow each time, but its first download
 * happens only once.
 */
export class Experience {
  #longestMs: Millis | undefined

  /** Notes a successful start; `silentMs`: how long the process wrote nothing. */
  learn(silentMs: Millis): void {
    this.#longestMs = Math.max(silentMs, this.#longestMs ?? 0)
  }

  /**
   * Returns how long the next process may be silent: a program that has never started successfully may still be
   * downloading.
   */
  patienceFor({ startMs, handshakeMs }: StartLimits): Millis {
    if (this.#longestMs === undefined) return startMs
    return Math.min(startMs, Math.max(handshakeMs, 3 * this.#longestMs))
  }
}

export interface StartParts {
  /** The config key of the limits, such as `mcpServers.files.timeouts`. */
  readonly key: string
  readonly limits: StartLimits
  readonly experience: Experience
  readonly clock: Clock
}

/**
 * The start of a process, up to the end of its handshake. Until its first output the process may be installing its
 * program. Interrupting an installation does harm, so this phase has a separate limit.
 */
export class Start {
  /** Aborts when the start takes too long or is no longer wanted. */
  readonly signal = new Cancellation()
  readonly #parts: StartParts
  readonly #begunAt: Millis
  #processAt: Millis
  /** How long the process was silent; undefined while silent. */
  #silentMs: Millis | undefined
  #process: SpeakingPipe | undefined
  #isOver = false
  #cancelLimit: Cancel = () => undefined

  /** `signal`: the signal of the waiting caller. */
  constructor(parts: StartParts, signal?: Signal) {
    this.#parts = parts
    this.#begunAt = this.#processAt = parts.clock.now()
    if (signal !== undefined) whenAborted(signal, (error) => this.#isOver || this.signal.abort(error))
  }

  get forMs(): Millis {
    return this.#parts.clock.now() - this.#begunAt
  }

  get told(): string {
    const { key } = this.#parts
    return `the server is still starting, for ${roundedDuration(this.forMs)} so far (${key}.start)`
  }

  watch(start: StartProcess): Connect {
    return async (events, signal) => {
      this.#begin()
      this.#process = await start(this.#heard(events), signal)
      return this.#process
    }
  }

  end(cameUp: boolean): void {
    this.#isOver = true
    this.#cancelLimit()
    if (cameUp) this.#parts.experience.learn(this.#silentMs ?? 0)
  }

  #begin(): void {
    const { key, limits, experience, clock } = this.#parts
    this.#processAt = clock.now()
    this.#silentMs = undefined
    const ms = experience.patienceFor(limits)
    this.#limit(ms, () => {
      const which = ms === limits.handshakeMs ? 'discovery' : 'start'
      return `the server's process wrote nothing within ${roundedDuration(ms)} of its start (${key}.${which})`
    })
  }

  /** Called when the process writes: from its first output on, the handshake limit applies. */
  #spoke(): void {
    if (this.#isOver || this.#silentMs !== undefined) return
    const { key, limits, clock } = this.#parts
    this.#silentMs = clock.now() - this.#processAt
    this.#limit(
      limits.handshakeMs,
      () => `the handshake took longer than ${formatDuration(limits.handshakeMs)} (${key}.discovery)`,
    )
  }

  #limit(ms: Millis, message: () => string): void {
    this.#cancelLimit()
    this.#cancelLimit = this.#parts.clock.after(ms, () => {
      this.signal.abort(gatewayError('attempt_timeout', withWords(message(), this.#process?.lastWords)))
    })
  }

  /** Adds the process's words to errors until the handshake is over: later errors concern calls. */
  #heard(events: PipeEvents): PipeEvents {
    const explained = (error: GatewayError, words: string | undefined) =>
      this.#isOver ? error : { ...error, message: withWords(error.message, words) }
    return {
      message: (text) => {
        this.#spoke()
        return events.message(text)
      },
      overlong: (id, limit) => {
        this.#spoke()
        events.overlong(id, limit)
      },
      closed: (error, words) => events.closed(explained(error, words)),
    }
  }
}

function withWords(message: string, words: string | undefined): string {
  return words === undefined ? message : `${message}: ${words}`
}

/** Kept part of each line, in characters. */
const KEPT_CHARACTERS = 1_000

/** A line that names a cause is kept for this many further lines: a long stack trace may follow. */
const CAUSE_HOLDS_FOR = 200

/** Matches a line that names the cause of a failure. Later lines say where the failure happened, and with what data. */
const CAUSE =
  /\b(?:error|exception|fatal|panic|missing|required|cannot|could not|not found|denied|invalid)\b|Error:/i

/** Lines written by runtimes and package managers below the cause. */
const POSTSCRIPT = /^(?:\s|Node\.js v|\}|npm (?:ERR!|error) A complete log)/

/** The latest complaints of a process on its standard error. */
export class Complaints {
  #cause = ''
  #sinceCause = 0
  /** The last line that is no postscript, and the last line of all. */
  #line = ''
  #last = ''

  add(line: string): void {
    if (line.trim() === '') return
    this.#last = clipWords(line, KEPT_CHARACTERS)
    this.#sinceCause++
    if (POSTSCRIPT.test(line)) return
    this.#line = this.#last
    if (!CAUSE.test(this.#last)) return
    this.#cause = this.#last
    this.#sinceCause = 0
  }

  /** Returns the most likely cause of the process's end; empty when unknown. */
  get told(): string {
    if (this.#cause !== '' && this.#sinceCause <= CAUSE_HOLDS_FOR) return this.#cause
    return this.#line || this.#last
  }
}
