import { Cancellation, type Signal } from '../../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { formatDuration, roundedDuration } from '../../units/duration.ts'
import { whenAborted } from '../failure.ts'
import type { Connect, Pipe, PipeEvents } from '../pipe/pipe.ts'
import type { StartLimits } from '../upstream.ts'
import { clipWords } from '../../units/recent.ts'

/** A process whose last words can be told. */
export interface SpeakingPipe extends Pipe {
  /** The end of its standard error, in quotation marks and without secrets; undefined when it said nothing. */
  readonly lastWords: string | undefined
}

/** Starts a process. */
export type StartProcess = (...given: Parameters<Connect>) => Promise<SpeakingPipe>

/**
 * The experience with a program, from processes that came up. A program that takes a minute to load does so each time; a program
 * that was only downloaded the first time does not.
 */
export class Experience {
  #longestMs: Millis | undefined

  /** A process came up that was silent for so long first. */
  learn(silentMs: Millis): void {
    this.#longestMs = Math.max(silentMs, this.#longestMs ?? 0)
  }

  /** How long the next process may be silent: one of a program that never came up may still be downloading it. */
  patienceFor({ startMs, handshakeMs }: StartLimits): Millis {
    if (this.#longestMs === undefined) return startMs
    return Math.min(startMs, Math.max(handshakeMs, 3 * this.#longestMs))
  }
}

export interface StartParts {
  /** Where the config has the limits, such as `mcpServers.files.timeouts`. */
  readonly key: string
  readonly limits: StartLimits
  readonly experience: Experience
  readonly clock: Clock
}

/**
 * The start of a process, up to the end of its handshake. Until it has written something to its standard output it may be
 * installing what it is to run, which nobody interrupts without harm, and has a limit of its own.
 */
export class Start {
  /** Aborts when it has taken too long, or is not wanted any more. */
  readonly signal = new Cancellation()
  readonly #parts: StartParts
  readonly #begunAt: Millis
  #processAt: Millis
  /** How long the process was silent; undefined while it is. */
  #silentMs: Millis | undefined
  #process: SpeakingPipe | undefined
  #isOver = false
  #cancelLimit: Cancel = () => undefined

  /** `signal`: of whom it is for. */
  constructor(parts: StartParts, signal?: Signal) {
    this.#parts = parts
    this.#begunAt = this.#processAt = parts.clock.now()
    if (signal !== undefined) whenAborted(signal, (error) => this.#isOver || this.signal.abort(error))
  }

  /** How long it has been under way, in milliseconds. */
  get forMs(): Millis {
    return this.#parts.clock.now() - this.#begunAt
  }

  /** The message for somebody who waits for the start. */
  get told(): string {
    const { key } = this.#parts
    return `the server is still starting, for ${roundedDuration(this.forMs)} so far (${key}.start)`
  }

  /** Looks after the process that `start` starts. */
  watch(start: StartProcess): Connect {
    return async (events, signal) => {
      this.#begin()
      this.#process = await start(this.#heard(events), signal)
      return this.#process
    }
  }

  /** It came up, or did not. */
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

  /** From now on it is known what to expect: the process can speak. */
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

  /** Adds the process's words to errors until the handshake is over: so far the words are about the process, not about a call. */
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

/** How much of each line is kept, in characters. */
const KEPT_CHARACTERS = 1_000

/** A line that names a cause counts until so many further lines have come: a long stack may stand below the line. */
const CAUSE_HOLDS_FOR = 200

/** Lines that name a cause. What stands below them is where it happened, and with what. */
const CAUSE =
  /\b(?:error|exception|fatal|panic|missing|required|cannot|could not|not found|denied|invalid)\b|Error:/i

/** The lines that runtimes and package managers write below the cause. */
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

  /** The line that says most likely why the process ended; empty when there is none. */
  get told(): string {
    if (this.#cause !== '' && this.#sinceCause <= CAUSE_HOLDS_FOR) return this.#cause
    return this.#line || this.#last
  }
}
