import { Placeholders } from './placeholders.ts'
import { WireExchange, type WireReply, type WireRequest } from './wire.ts'

/** One exchange as it is recorded, with placeholders for what differs from run to run. */
export interface Exchange {
  readonly title: string
  /** The request: its line, its headers but for those that every request has, an empty line, its body. */
  readonly sent: string
  readonly status: number
  readonly headers: readonly string[]
  readonly body: string
  /** How the reply ended, unless as HTTP says. */
  readonly end?: 'closed' | 'dropped'
}

/** Longest part of a request that is recorded, in characters: it is the script's and only there to be read. */
const LONGEST_SENT = 200

/** An exchange that is under way: it is recorded at its end, so that the order of ends is that of the record. */
export interface OpenExchange {
  /** Waits for the head of the reply. */
  begun(): Promise<void>
  /** Waits for so many events; returns all that have come. */
  events(count: number): Promise<readonly string[]>
  end(): Promise<WireReply>
  /** Hangs up, and records what has come: to be called after a wait for all that has to come. */
  drop(): WireReply
}

/** What stands in the record for a body that says more than stays the same. */
type Shown = (body: string) => string

const whole: Shown = (body) => body

/** Plays requests one after the other, and writes down what comes back. */
export class Player {
  readonly exchanges: Exchange[] = []
  readonly #placeholders: Placeholders
  #chapter = ''

  /** `known`: as `Placeholders` takes it. */
  constructor(known: Readonly<Record<string, string>>) {
    this.#placeholders = new Placeholders(known)
  }

  /** What the next exchanges are about: stands before their titles. */
  begin(chapter: string): void {
    this.#chapter = chapter
  }

  /** Sends a request and waits for the end of its reply. `shown`: of the body, what is recorded; all unless given. */
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

/** Headers that are not worth a line of the record. */
const usual = new Set(['content-type: application/json', 'accept: application/json, text/event-stream'])

function written({ method, path, headers, body }: WireRequest): string {
  const head = headers
    .filter((header) => !usual.has(header.join(': ')))
    .map(([name, value]) => `${name}: ${value}\n`)
    .join('')
  return `${method} ${path}\n${head}${body === undefined ? '' : `\n${body}`}`
}
