import { isDeepStrictEqual } from 'node:util'
import { Agent, request } from 'undici'
import type { WebhookConfig } from '../../config/schema/health-schema.ts'
import { ignore } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { KeyedRandom } from '../../mesh/keyed-random.ts'
import { retryAfter } from '../../upstreams/http/http-status.ts'
import { type Notice, type NoticeRequest, receiverOf, requestOf } from './notices.ts'

/** The result of a try; after `retried` another try follows. */
export type NoticeResult = 'delivered' | 'retried' | 'failed' | 'dropped'

/** The report on a try or a dropped notice; `why` contains no URL and no secret. */
export interface NoticeOutcome {
  readonly webhook: string
  /** The receiver at the time, by `receiverOf`. */
  readonly receiver: string
  readonly notice: Notice
  readonly result: NoticeResult
  readonly why: string
  /** The number of tries so far. */
  readonly tries: number
}

export interface NotifierParts {
  readonly clock: Clock
  readonly random: KeyedRandom
  /** Called before each try with the current receiver; false drops the notice. Must not throw. */
  readonly mayTell: (webhook: string, receiver: string, notice: Notice) => boolean
  /** Must not throw. */
  readonly onOutcome: (outcome: NoticeOutcome) => void
}

/** Most notices waiting per webhook. */
const MAX_WAITING = 1_000

/** Most tries per notice: about five minutes with the pauses. */
const MOST_TRIES = 10

/** Pause after a failed try, in milliseconds: doubles from first to last, minus a random part of up to half. */
const FIRST_PAUSE_MS: Millis = 1_000
const LAST_PAUSE_MS: Millis = 60_000

/** Longest pause a receiver can ask for, in milliseconds. */
const LONGEST_ASKED_MS: Millis = 300_000

/** Timeout of a try, including connection and reply, in milliseconds. */
const TRY_MS: Millis = 10_000

/** Timeout of the ignored body of a reply, in milliseconds. Reading the body allows reuse of the connection. */
const BODY_MS: Millis = 1_000

/** Most bytes read of a reply's ignored body. */
const MAX_REPLY = 16 * 1024

/** Sends notices to webhooks. Each webhook gets its notices in order, each retried before the next. */
export class Notifier {
  readonly #parts: NotifierParts
  readonly #lanes = new Map<string, Lane>()

  constructor(parts: NotifierParts) {
    this.#parts = parts
  }

  /** The receiver of each webhook, by webhook name. */
  get receivers(): ReadonlyMap<string, string> {
    return new Map([...this.#lanes].map(([name, { receiver }]) => [name, receiver]))
  }

  /**
   * Applies new webhooks. Waiting notices go to a changed webhook's new receiver; those of a removed webhook are
   * dropped.
   */
  follow(webhooks: readonly WebhookConfig[]): void {
    const wanted = new Set(webhooks.map(({ name }) => name))
    for (const [name, lane] of this.#lanes)
      if (!wanted.has(name)) {
        this.#lanes.delete(name)
        lane.end('the webhook was removed from the config')
      }
    for (const webhook of webhooks) {
      const lane = this.#lanes.get(webhook.name)
      if (lane === undefined) this.#lanes.set(webhook.name, new Lane(webhook, this.#parts))
      else lane.follow(webhook)
    }
  }

  /** Queues a notice; dropped when too many wait. Does nothing for an unknown webhook. */
  send(webhook: string, notice: Notice): void {
    this.#lanes.get(webhook)?.add(notice)
  }

  /** Aborts all requests, and reports nothing on unsent notices. */
  async close(): Promise<void> {
    const lanes = [...this.#lanes.values()]
    this.#lanes.clear()
    await Promise.all(lanes.map((lane) => lane.stop()))
  }
}

interface Waiting {
  readonly notice: Notice
  tries: number
}

class Lane {
  /** A separate connection, so a hanging receiver delays no other webhook at the same host. */
  readonly #agent = new Agent({ connections: 1, maxHeaderSize: 16 * 1024 })
  readonly #parts: NotifierParts
  readonly #waiting: Waiting[] = []
  readonly #over = new AbortController()
  #webhook: WebhookConfig
  #receiver: string
  /** Ends the pause before the next try. */
  #hurry: AbortController | undefined
  /** Failed tries in a row, over all notices. */
  #failures = 0
  #isRunning = false

  constructor(webhook: WebhookConfig, parts: NotifierParts) {
    this.#webhook = webhook
    this.#receiver = receiverOf(webhook)
    this.#parts = parts
  }

  get receiver(): string {
    return this.#receiver
  }

  follow(webhook: WebhookConfig): void {
    if (isDeepStrictEqual(webhook, this.#webhook)) return
    this.#webhook = webhook
    this.#receiver = receiverOf(webhook)
    this.#hurry?.abort()
  }

  add(notice: Notice): void {
    const waiting = { notice, tries: 0 }
    if (this.#waiting.length >= MAX_WAITING)
      return this.#tell(waiting, 'dropped', `${MAX_WAITING} notices already wait for this webhook`)
    this.#waiting.push(waiting)
    if (!this.#isRunning) void this.#run()
  }

  stop(): Promise<void> {
    this.#over.abort()
    return this.#agent.destroy()
  }

  end(why: string): void {
    void this.stop()
    for (const waiting of this.#waiting.splice(0)) this.#tell(waiting, 'dropped', why)
  }

  async #run(): Promise<void> {
    this.#isRunning = true
    for (let next; (next = this.#waiting[0]) !== undefined && !this.#over.signal.aborted;) {
      const tried = await this.#try(next)
      if (this.#over.signal.aborted) break
      if (tried.result === 'retried') await this.#pause(tried.askedMs ?? 0)
      else this.#waiting.shift()
    }
    this.#isRunning = false
  }

  async #try(waiting: Waiting): Promise<{ readonly result: NoticeResult; readonly askedMs?: Millis }> {
    const receiver = this.#receiver
    if (!this.#parts.mayTell(this.#webhook.name, receiver, waiting.notice)) {
      this.#tell(waiting, 'dropped', 'another receiver was told of the incident')
      return { result: 'dropped' }
    }
    const wanted = requestOf(this.#webhook, waiting.notice)
    if (wanted === undefined) {
      this.#tell(waiting, 'dropped', 'the webhook pages people, and the notice must page nobody')
      return { result: 'dropped' }
    }
    waiting.tries++
    const { status, why, askedMs } = await this.#post(wanted)
    if (this.#over.signal.aborted) return { result: 'dropped' }
    const isTaken = status !== undefined && status >= 200 && status < 300
    const mayPass = status === undefined || status >= 500 || status === 408 || status === 429
    this.#failures = isTaken ? 0 : this.#failures + 1
    const result = isTaken ? 'delivered' : mayPass && waiting.tries < MOST_TRIES ? 'retried' : 'failed'
    this.#tell(waiting, result, why, receiver)
    return { result, ...(askedMs !== undefined && { askedMs }) }
  }

  /** Sends a request. Never rejects. */
  async #post({
    url,
    headers,
    body,
  }: NoticeRequest): Promise<{ readonly status?: number; readonly why: string; readonly askedMs?: Millis }> {
    const { clock } = this.#parts
    const limit = new AbortController()
    const abort = () => limit.abort()
    const cancel = clock.after(TRY_MS, abort)
    this.#over.signal.addEventListener('abort', abort, { once: true })
    try {
      const { href, authorization } = withoutUser(url)
      const reply = await request(href, {
        method: 'POST',
        headers: { ...authorization, ...headers },
        body,
        // undici follows no redirects by default: a receiver must not choose another target for notices.
        dispatcher: this.#agent,
        signal: limit.signal,
      })
      const { statusCode: status } = reply
      const named = { get: (header: string) => [reply.headers[header]].flat()[0] }
      const askedMs = retryAfter(named, clock.wall())
      // Only the status counts. A slow, broken or endless body does not change the result.
      const late = clock.after(BODY_MS, abort)
      await reply.body.dump({ limit: MAX_REPLY, signal: limit.signal }).catch(ignore)
      late()
      return { status, why: `HTTP ${status}`, ...(askedMs !== undefined && { askedMs }) }
    } catch (error) {
      const { code, name } = error as NodeJS.ErrnoException
      return {
        why: limit.signal.aborted ? `no reply within ${TRY_MS} ms` : `not delivered (${code ?? name})`,
      }
    } finally {
      cancel()
      this.#over.signal.removeEventListener('abort', abort)
    }
  }

  async #pause(askedMs: Millis): Promise<void> {
    const { clock, random } = this.#parts
    const fullMs = Math.min(LAST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#failures - 1))
    const draw = random(`${this.#webhook.name} ${this.#failures}`, 'notice-pause')
    const ownMs = fullMs * (1 - draw / 2)
    const hurry = (this.#hurry = new AbortController())
    const over = () => hurry.abort()
    this.#over.signal.addEventListener('abort', over, { once: true })
    // Ends early when the webhook changes, or at close.
    await clock.sleep(Math.min(LONGEST_ASKED_MS, Math.max(ownMs, askedMs)), hurry.signal).catch(ignore)
    this.#over.signal.removeEventListener('abort', over)
    this.#hurry = undefined
  }

  #tell({ notice, tries }: Waiting, result: NoticeResult, why: string, receiver = this.#receiver): void {
    this.#parts.onOutcome({ webhook: this.#webhook.name, receiver, notice, result, why, tries })
  }
}

/** Moves user and password of a URL into a header, because undici ignores both. */
function withoutUser(url: string): { href: string; authorization: Record<string, string> } {
  const parsed = new URL(url)
  const { username, password } = parsed
  if (username === '' && password === '') return { href: url, authorization: {} }
  const user = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  parsed.username = parsed.password = ''
  return {
    href: parsed.href,
    authorization: { authorization: `Basic ${Buffer.from(user).toString('base64')}` },
  }
}
