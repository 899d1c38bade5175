import { Placeholders } from './placeholders.ts'
import { WireExchange, type WireReply, type WireRequest } from './wire.ts'

/** One recorded exchange, with placeholders for values that differ from run to run. */
export interface Exchange {
  readonly title: string
  /** The request: its line, its unusual headers, an empty line, its body. */
  readonly sent: string
  readonly status: number
  readonly headers: readonly string[]
  readonly body: string
  /** How the reply ended; absent for a normal end. */
  readonly end?: 'closed' | 'dropped'
}

/** Longest recorded part of a request, in characters. It is for readers only; the script has the rest. */
const LONGEST_SENT = 200

/** An exchange under way. It is recorded at its end, so the record has the order of ends. */
export interface OpenExchange {
  begun(): Promise<void>
  events(count: number): Promise<readonly string[]>
  end(): Promise<WireReply>
  /** Hangs up, and records the reply so far. Call it only after waiting for everything expected. */
  drop(): WireReply
}

/** Returns the recorded form of a body with parts that vary. */
type Shown = (body: string) => string

const whole: Shown = (body) => body

/** Plays requests in sequence, and records the replies. */
export class Player {
  readonly exchanges: Exchange[] = []
  readonly #placeholders: Placeholders
  #chapter = ''

  /** `known`: see `Placeholders`. */
  constructor(known: Readonly<Record<string, string>>) {
    this.#placeholders = new Placeholders(known)
  }

  /** Sets the chapter, which precedes the titles of the next exchanges. */
  begin(chapter: string): void {
    this.#chapter = chapter
  }

  /**
   * Sends a request and waits for the end of its reply. `shown` returns the recorded part of the body; the default is
   * all.
   */
  async send(title: string, address: string, request: WireRequest, shown: Shown = whole): Promise<WireReply> {
    return this.open(title, address, request, shown).end()
  }

  open(title: string, address: string, request: WireRequest, shown: Shown = whole): OpenExchange {
    const wire = new WireExchange(address, request)
    const named = `${this.#chapter}: ${title}`
    const sent = this.#placeholders.in(written(request))
    const record = (reply: WireReply) => {
      const { status, end } = reply
      const body = this.#placeholders.in(shown(reply.body))
      this.exchanges.push({
        title: named,
        sent: sent.length <= LONGEST_SENT ? sent : `${sent.slice(0, LONGEST_SENT)}… (${sent.length})`,
        status,
        headers: this.#placeholders.headersOf(reply, body),
        body,
        ...(end === 'complete' ? {} : { end }),
      })
      return reply
    }
    const inTime = <T>(waiting: Promise<T>) =>
      waiting.catch((error: unknown) => {
        throw new Error(`${named}: ${(error as Error).message}\n${sent}`)
      })
    return {
      begun: () => inTime(wire.begun()),
      events: (count) => inTime(wire.events(count)),
      end: () => inTime(wire.end()).then(record),
      drop: () => record(wire.drop()),
    }
  }
}

/** Headers left out of the record. */
const usual = new Set(['content-type: application/json', 'accept: application/json, text/event-stream'])

function written({ method, path, headers, body }: WireRequest): string {
  const head = headers
    .filter((header) => !usual.has(header.join(': ')))
    .map(([name, value]) => `${name}: ${value}\n`)
    .join('')
  return `${method} ${path}\n${head}${body === undefined ? '' : `\n${body}`}`
}
