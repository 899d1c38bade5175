import { isUtf8 } from 'node:buffer'
import type { IncomingHttpHeaders } from 'node:http'
import { clientOf } from '../limits/quotas.ts'
import { gatewayErrorText } from '../respond.ts'
import { ignore } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { ownTurn } from '../../mesh/turns.ts'
import { during, LARGE_TEXT } from '../../mesh/work.ts'
import { Chunks, textOf } from '../../protocol/chunks.ts'
import { errorText, INVALID_REQUEST, PARSE_ERROR } from '../../protocol/jsonrpc.ts'
import { formatDuration } from '../../units/duration.ts'
import type { BodySource, HttpReply } from '../../wire/http-reply.ts'

export interface BodyLimits {
  /** Most received bytes of all bodies with open requests; at least twice the largest body. */
  readonly total: number
  /** The same limit for one client address. */
  readonly perAddress: number
  /** Most unfinished bodies. A body counts from its first chunk, or from a second after its head. */
  readonly count: number
  /** The same limit for one client address. */
  readonly countPerAddress: number
  /** How long a body may receive nothing, in milliseconds. */
  readonly stalled: Millis
  /** How long a whole body may take, in milliseconds. */
  readonly whole: Millis
}

export interface BodyRules {
  /** The largest body, in bytes. */
  readonly maxBody: number
  /** The name of this limit in refusals; default `gateway.maxBody`. */
  readonly maxBodyName?: string
  /** The largest body of a request without session id and protocol version, in bytes; default `maxBody`. */
  readonly maxFirst?: number
  /**
   * Returns the agent's name from its request headers, for agents behind one address; default: one agent per address.
   */
  readonly agentOf?: (headers: IncomingHttpHeaders) => string
}

/** Causes for refusing a body: it was too slow, or bodies exceeded a limit in total or for one address. */
export const bodyRefusals = ['stalled', 'total', 'per_address'] as const

export type BodyRefusalCause = (typeof bodyRefusals)[number]

/**
 * Largest body of a request to `/mcp` without session id and protocol version, in bytes. Only the `initialize` that
 * begins a session omits both headers. Its params fit into a quarter of this limit.
 */
export const MAX_FIRST_BODY = 64 * 1024

/**
 * A body's first `FREE_CHUNKS` chunks may have any size. With more chunks, the average size must be `LEAST_CHUNK`
 * bytes. Node spends 20 µs or more on each chunk, and handles all waiting chunks at once. So 64 KiB of tiny chunks
 * block the event loop for 0.3 s.
 */
const FREE_CHUNKS = 1_000
const LEAST_CHUNK = 16

/**
 * Bytes of a body read in one turn of the event loop: many bodies may arrive at once, each with a full socket buffer.
 */
const BYTES_PER_TURN = 256 * 1024

/** Bodies of at least this size, in bytes, count until their request ends. The limit on calls bounds smaller bodies. */
const HELD_FROM = 16 * 1024

/**
 * An agent may use four times the free part of a limit: a single agent gets four fifths of the limit. So an agent
 * always leaves room for the next agent. Source: Choudhury and Hahne, "Dynamic queue length thresholds for
 * shared-memory packet switches" (1998).
 */
const TIMES_FREE = 4

/** Bodies are counted for each agent once this part of a limit is in use. Below it, one count per address is enough. */
const TOLD_APART_FROM = 1 / 8

/** At a limit, the gateway first refuses bodies with a lower average speed than this, in bytes a second. */
const SLOW = 4_096

/** Interval between checks of incomplete bodies, in milliseconds. The first check of a body begins to count it. */
const LOOK_MS: Millis = 1_000

/** The error for a body of another content type (415). */
export const NOT_JSON = 'Unsupported Media Type: the Content-Type must be application/json'

/** The reason for refusing a body, with the error for its sender. */
export class BodyRefusal extends Error {
  readonly statusCode: number
  readonly text: string
  readonly headers: Readonly<Record<string, string>>

  constructor(statusCode: number, message: string, text?: string, headers: BodyRefusal['headers'] = {}) {
    super(message)
    this.statusCode = statusCode
    this.text = text ?? errorText(null, statusCode === 400 ? PARSE_ERROR : INVALID_REQUEST, message)
    this.headers = headers
  }
}

/**
 * How long the gateway reads and discards the rest of a refused body, in milliseconds; then it closes the connection.
 */
const LINGER_MS: Millis = 2_000

/**
 * Answers a request before its body is complete, and discards the rest of the body. Closing a connection with unread
 * bytes would reset it, and a client that still writes would never read the answer (RFC 9112, 9.6). `text`: the answer,
 * if not JSON-RPC.
 */
export function refuseBody(
  response: HttpReply,
  refusal: BodyRefusal,
  clock: Clock,
  text = refusal.text,
): void {
  const request = response.req
  const length = Buffer.byteLength(text)
  const head = {
    ...refusal.headers,
    'content-type': 'application/json; charset=utf-8',
    'content-length': length,
  }
  response.writeHead(refusal.statusCode, head)
  if (request.complete) return void response.end(text)
  // Does not end the response yet: Node would close a connection without keep-alive, although body bytes still arrive.
  // The content length tells the client where the answer ends.
  response.write(text)
  discard(request, clock, () => response.end())
}

/**
 * Discards the rest of a body, for `LINGER_MS` at most and unless its chunks are too small. Calls `complete` at the
 * body's end.
 */
function discard(request: BodySource, clock: Clock, complete: () => void): void {
  let [chunks, bytes] = [0, 0]
  const end = () => void request.socket.destroy()
  const cancel = clock.after(LINGER_MS, end)
  request
    .once('end', () => {
      cancel()
      complete()
    })
    .once('close', cancel)
    .on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (!areTooSmall(++chunks, bytes)) return
      // Pauses first: Node still emits the bytes already read, and discards them ten times as fast when paused.
      request.pause()
      end()
    })
    .resume()
}

/** True when a body has too many chunks for its number of bytes: each chunk costs CPU. */
const areTooSmall = (chunks: number, bytes: number) => chunks > FREE_CHUNKS && bytes < LEAST_CHUNK * chunks

type Done = (error: BodyRefusal | null, body?: string) => void

/** The two limits on bodies: their number and their bytes. */
type Measure = 'count' | 'bytes'

/**
 * The counted bodies of one agent. Only large bodies count, and bodies that began while their address had many
 * unfinished bodies.
 */
interface Share {
  count: number
  bytes: number
}

/** The unfinished bodies of one address, with the counts of its agents by name. */
interface Sender extends Share {
  readonly address: string
  readonly shares: Map<string, Share>
}

/** Returns the count of a body's agent; 1 while the address's agents are not counted separately. */
const has = ({ share }: Body, measure: Measure) => share?.[measure] ?? 1

/**
 * True when an agent or address uses more than four times the free part of a limit. `own` and `all` include the new
 * body.
 */
const isBeyond = (limit: number, all: number, own: number) => own > TIMES_FREE * (limit - all + 1)

/**
 * Returns the share with the highest count, among shares with unfinished bodies; `own` unless another share has more.
 */
function largestOf<S extends Share>(
  shares: Iterable<S>,
  own: S | undefined,
  measure: Measure,
): S | undefined {
  let largest = own
  for (const share of shares)
    if (share.count > 0 && share[measure] > (largest?.[measure] ?? 0)) largest = share
  return largest
}

/**
 * Reads request bodies, and keeps all bodies together within the limits. A client that sends too slowly, or in chunks
 * that are too small, gets an error and is disconnected.
 */
export class Bodies {
  readonly #clock: Clock
  readonly #maxBody: number
  readonly #maxBodyName: string
  readonly #maxFirst: number
  readonly #agentOf: (headers: IncomingHttpHeaders) => string
  /** Largest body, in bytes, that the limits in bytes never refuse. */
  readonly #smallest: number
  readonly #refused: (cause: BodyRefusalCause) => void
  /**
   * Bodies before their first chunk. Only the limit on connections bounds their number. A body joins the list of
   * unfinished bodies with its first chunk, or at the next check.
   */
  readonly #arriving = new Set<Body>()
  /** Both ends of the linked list of unfinished bodies. */
  #newest: Body | undefined
  #oldest: Body | undefined
  readonly #senders = new Map<string, Sender>()
  /** The limits in force; a reload replaces them. */
  limits: BodyLimits
  #count = 0
  #bytes = 0
  #looking = false

  /** Calls `refused` for each body refused for one of the causes in `bodyRefusals`. */
  constructor(
    clock: Clock,
    { maxBody, maxBodyName = 'gateway.maxBody', maxFirst = maxBody, agentOf = () => '' }: BodyRules,
    limits: BodyLimits,
    refused: (cause: BodyRefusalCause) => void,
  ) {
    this.#clock = clock
    this.#maxBody = maxBody
    this.#maxBodyName = maxBodyName
    this.#maxFirst = Math.min(maxFirst, maxBody)
    this.#agentOf = agentOf
    this.#smallest = Math.min(HELD_FROM, maxBody / 4)
    this.limits = limits
    this.#refused = refused
  }

  /** Received bytes of incomplete bodies, and of complete bodies whose request has not ended. */
  get bytes(): number {
    return this.#bytes
  }

  /** Number of unfinished bodies in the list. */
  get count(): number {
    return this.#count
  }

  /** Largest body, in bytes, that `textOf` takes: the limits in number and in bytes never refuse a smaller body. */
  get largestWhole(): number {
    return this.#smallest
  }

  /**
   * Returns the text of a body that arrived as a whole, and takes at most `largestWhole` bytes: the bytes of `chunk` from
   * `from` to `to`. Returns a refusal for a body that is too large or not UTF-8.
   */
  textOf(headers: IncomingHttpHeaders, chunk: Buffer, from: number, to: number): string | BodyRefusal {
    const max = this.#maxOf(headers)
    if (to - from > max) return this.#tooLarge(max)
    const text = chunk.toString('utf8', from, to)
    return isDamaged(text, chunk, from, to) ? notUtf8() : text
  }

  /** Reads the body of a request as UTF-8 text; passes `done` the text or a `BodyRefusal`. */
  read(payload: BodySource, done: Done): void {
    const { headers } = payload
    const declared = Number(headers['content-length'] ?? 0)
    const max = this.#maxOf(headers)
    if (declared > max) return done(this.#tooLarge(max))
    const sender = this.#senderOf(clientOf(payload.socket.remoteAddress))
    const body = new Body(this, { payload, declared, max, sender, done })
    this.#arriving.add(body)
    if (!this.#looking) this.#lookLater()
    body.begin()
  }

  /** Adds received bytes to the counts of a body's agent and address, and applies the limits in bytes. */
  came(body: Body, bytes: number): void {
    const { sender, share } = body
    this.#bytes += bytes
    sender.bytes += bytes
    if (share !== undefined) share.bytes += bytes
    if (areTooSmall(body.chunks, body.bytes)) return this.#fail(body, tooSmallChunks(body))
    if (body.bytes > body.max) return this.#fail(body, this.#tooLarge(body.max))
    body.moved += bytes
    if (!body.isWhole && this.#arriving.has(body)) this.#place(body)
    if (!body.isOpen) return
    // Skips small bodies: the limits in number bound them, and bodies of slow calls may use up all bytes.
    if (body.bytes <= this.#smallest) return
    if (body.share === undefined) this.#share(body)
    const { total, perAddress } = this.limits
    this.#bound(body, 'bytes', Math.max(perAddress, 2 * this.#maxBody), Math.max(total, 2 * this.#maxBody))
  }

  /** Begins to count a body for its agent too. */
  #share(body: Body): void {
    const share = this.#shareOf(body.sender, body.headers)
    share.count++
    share.bytes += body.bytes
    body.share = share
  }

  #shareOf({ shares }: Sender, headers: IncomingHttpHeaders): Share {
    const agent = this.#agentOf(headers)
    let share = shares.get(agent)
    if (share === undefined) shares.set(agent, (share = { count: 0, bytes: 0 }))
    return share
  }

  /**
   * Refuses unfinished bodies until `body` fits, or refuses `body`. While the agent of `body` uses too much, refuses a
   * body of the same address. While the address of `body` uses too much, refuses a body of the address that uses most.
   */
  #bound(body: Body, measure: Measure, perAddress: number, total: number): void {
    const { sender, share } = body
    if (share !== undefined)
      while (body.isOpen && isBeyond(perAddress, sender[measure], share[measure]))
        this.#refuse(this.#refusable(sender, body, measure), 'per_address', measure, perAddress)
    for (;;) {
      const all = measure === 'count' ? this.#count : this.#bytes
      if (!body.isOpen || !isBeyond(total, all, sender[measure])) return
      const largest = largestOf(this.#senders.values(), sender, measure) ?? sender
      const isTied = (other: Body) => other !== body && other.sender.count === largest.count
      const tied = measure === 'count' ? this.#slowest(isTied) : undefined
      this.#refuse(this.#refusable(tied?.sender ?? largest, body, measure), 'total', measure, total)
    }
  }

  /**
   * Returns the slowest unfinished body for which `isOne` is true; of equally slow bodies, the oldest. Undefined when
   * none matches.
   */
  #slowest(isOne: (body: Body) => boolean): Body | undefined {
    let found: Body | undefined
    for (let body = this.#oldest; body !== undefined; body = body.newer)
      if (isOne(body) && (found === undefined || body.leastRate < found.leastRate)) found = body
    return found
  }

  /**
   * Returns the unfinished body to refuse at an address, by three rules in turn. First: the slowest body below 4 KiB a
   * second of an agent with at least half of the largest share (for bytes: of the average share). Second: the slowest
   * body of an agent with the largest share, except `body`. Third: `body`. The rules compare speed, because by age a
   * client could end every old body with cheap new bodies. A limit in bytes never refuses small bodies. An agent's own
   * new body replaces only a larger body of the agent.
   */
  #refusable(sender: Sender, body: Body, measure: Measure): Body {
    // An empty body is always the slowest. A search for each of many empty bodies would take quadratic time.
    if (body.bytes === 0) return body
    const own = body.sender === sender ? body.share : undefined
    const most = largestOf(sender.shares.values(), own, measure)?.[measure] ?? 1
    // For bytes, compares with the average: one agent with a very large share would protect all agents with smaller
    // shares.
    const enough = (measure === 'count' ? most : sender.bytes / sender.shares.size) / 2
    const isCounted = (other: Body) =>
      other.sender === sender && (measure === 'count' || other.bytes > this.#smallest)
    const isLarger = (other: Body) => measure === 'count' || other.share !== own || other.bytes > body.bytes
    return (
      this.#slowest((other) => isCounted(other) && other.isSlow && has(other, measure) >= enough) ??
      this.#slowest(
        (other) => other !== body && isCounted(other) && has(other, measure) === most && isLarger(other),
      ) ??
      body
    )
  }

  /**
   * Counts a complete body until its request ends. Returns a function that ends the counting, to be called exactly
   * once; undefined for a small body.
   */
  hold(client: string, headers: IncomingHttpHeaders, bytes: number): (() => void) | undefined {
    if (bytes < HELD_FROM) return undefined
    const sender = this.#senderOf(client)
    const share = this.#shareOf(sender, headers)
    const add = (amount: number) => {
      share.bytes += amount
      sender.bytes += amount
      this.#bytes += amount
    }
    add(bytes)
    if (!this.#looking) this.#lookLater()
    return () => add(-bytes)
  }

  #senderOf(address: string): Sender {
    let sender = this.#senders.get(address)
    if (sender === undefined)
      this.#senders.set(address, (sender = { address, count: 0, bytes: 0, shares: new Map() }))
    return sender
  }

  /** Adds a body to the list of unfinished bodies, and applies the limits in number. */
  #place(body: Body): void {
    const { sender } = body
    const { count, countPerAddress } = this.limits
    this.#arriving.delete(body)
    this.#enter(body)
    if (body.share === undefined && sender.count > countPerAddress * TOLD_APART_FROM) this.#share(body)
    this.#bound(body, 'count', countPerAddress, count)
  }

  #enter(body: Body): void {
    const newest = this.#newest
    body.older = newest
    if (newest === undefined) this.#oldest = body
    else newest.newer = body
    this.#newest = body
    body.sender.count++
    this.#count++
  }

  /** Removes a finished or failed body. Returns false when the body was already removed. */
  leave(body: Body): boolean {
    if (!body.isOpen) return false
    const { sender, share, bytes } = body
    body.isOpen = false
    if (!this.#arriving.delete(body)) this.#exit(body)
    sender.bytes -= bytes
    if (share !== undefined) {
      share.count--
      share.bytes -= bytes
    }
    this.#bytes -= bytes
    return true
  }

  #exit(body: Body): void {
    const { older, newer } = body
    if (older !== undefined) older.newer = newer
    else this.#oldest = newer
    if (newer !== undefined) newer.older = older
    else this.#newest = older
    // Clears the links: a body kept in memory would otherwise keep all later bodies in memory.
    body.older = body.newer = undefined
    body.sender.count--
    this.#count--
  }

  #maxOf(headers: IncomingHttpHeaders): number {
    const isFirst = headers['mcp-session-id'] === undefined && headers['mcp-protocol-version'] === undefined
    return isFirst ? this.#maxFirst : this.#maxBody
  }

  #tooLarge(max: number): BodyRefusal {
    const why =
      max === this.#maxBody
        ? this.#maxBodyName
        : 'of a request with neither Mcp-Session-Id nor MCP-Protocol-Version, which can only be initialize'
    return new BodyRefusal(413, `Request body is too large: at most ${max} bytes (${why})`)
  }

  #fail(body: Body, error: BodyRefusal): void {
    this.leave(body)
    body.fail(error)
  }

  #refuse(body: Body, cause: 'total' | 'per_address', measure: Measure, limit: number): void {
    const { sender } = body
    const isTotal = cause === 'total'
    const now = !isTotal ? sender[measure] : measure === 'count' ? this.#count : this.#bytes
    const much = now > limit ? 'too many' : 'nearly too many'
    const what = measure === 'count' ? '' : 'bytes of '
    const where = isTotal ? '' : ' from this address'
    const own = isTotal ? sender[measure] : has(body, measure)
    const others: Iterable<Share> = isTotal ? this.#senders.values() : sender.shares.values()
    const hasMost = [...others].every((other) => other[measure] <= own)
    const why = body.isSlow
      ? `, and this one came slower than ${SLOW} bytes a second`
      : hasMost
        ? `, and no other ${isTotal ? 'address' : 'agent'} has more`
        : ''
    const message = `${much} ${what}request bodies are on their way${where} (${now} of ${limit})${why}`
    const text = gatewayErrorText(null, gatewayError('overloaded', message, { retryAfterMs: 1_000 }), {})
    this.#refused(cause)
    this.#fail(body, new BodyRefusal(503, message, text, { 'retry-after': '1' }))
  }

  /**
   * Schedules the next check of all bodies. Checks repeat until no body counts any more. With a single timer no body
   * reads the clock, and a body may exceed its time limit by up to a second.
   */
  #lookLater(): void {
    this.#looking = true
    const since = this.#clock.now()
    this.#clock.after(LOOK_MS, () => {
      this.#looking = false
      this.#look(this.#clock.now() - since)
      for (const [address, sender] of this.#senders) {
        if (isEmpty(sender)) this.#senders.delete(address)
        else for (const [agent, share] of sender.shares) if (isEmpty(share)) sender.shares.delete(agent)
      }
      if (this.#senders.size > 0) this.#lookLater()
    })
  }

  /** Adds waiting bodies to the list, and refuses overdue bodies. `passed`: milliseconds since the last check. */
  #look(passed: Millis): void {
    for (const body of this.#arriving) this.#place(body)
    const { stalled, whole } = this.limits
    for (let body = this.#newest, older; body !== undefined; body = older) {
      older = body.older
      const why = body.age(passed, stalled, whole)
      if (why === undefined) continue
      this.#refused('stalled')
      this.#fail(body, new BodyRefusal(408, `Request Timeout: ${why}`))
    }
  }
}

const isEmpty = ({ count, bytes }: Share) => count === 0 && bytes === 0

function tooSmallChunks({ bytes, chunks }: Body): BodyRefusal {
  const average = (bytes / chunks).toFixed(1)
  const message = `Bad Request: the body comes in chunks of ${average} bytes (at least ${LEAST_CHUNK} on average, after ${FREE_CHUNKS})`
  return new BodyRefusal(400, message)
}

/** True when decoding has put replacement characters in place of bytes that are not UTF-8. */
const isDamaged = (text: string, bytes: Buffer, from: number, to: number) =>
  text.includes('\ufffd') && !isUtf8(bytes.subarray(from, to))

const notUtf8 = () => new BodyRefusal(400, 'Parse error: the body is not UTF-8')

interface BodyParts {
  readonly payload: BodySource
  /** The declared length in bytes; 0 when none is declared. */
  readonly declared: number
  /** The largest allowed length in bytes. */
  readonly max: number
  readonly sender: Sender
  readonly done: Done
}

class Body {
  readonly sender: Sender
  /** The agent's share; undefined while the address's agents are not counted separately. */
  share: Share | undefined
  readonly max: number
  /** True when the body is still being read. */
  isOpen = true
  /** Neighbours in the list of unfinished bodies. */
  older: Body | undefined
  newer: Body | undefined
  chunks = 0
  /** Bytes received since the last check. Starts at 1, so the first check never finds a body stalled. */
  moved = 1
  /** Starts one interval below 0: the time before the first check does not count. */
  #ageMs: Millis = -LOOK_MS
  #stalledMs: Millis = 0
  /** True while the body waits for its next turn of the event loop. */
  #awaitsTurn = false
  /** Bytes read in the current turn. */
  #sinceBreak = 0
  readonly #bodies: Bodies
  readonly #payload: BodySource
  readonly #declared: number
  readonly #done: Done
  readonly #chunks = new Chunks()

  constructor(bodies: Bodies, { payload, declared, max, sender, done }: BodyParts) {
    this.#bodies = bodies
    this.#payload = payload
    this.#declared = declared
    this.max = max
    this.sender = sender
    this.#done = done
  }

  get bytes(): number {
    return this.#chunks.length
  }

  /** True when the declared length has arrived. */
  get isWhole(): boolean {
    return this.bytes === this.#declared
  }

  /** True when the average speed is too low; false before the first check, and while the body waits for its turn. */
  get isSlow(): boolean {
    return !this.#awaitsTurn && this.bytes < (SLOW * this.#ageMs) / 1_000
  }

  /** Lower bound of the average speed, in bytes a millisecond; a bound, because ages are known to a second only. */
  get leastRate(): number {
    return this.bytes / (this.#ageMs + 2 * LOOK_MS)
  }

  get headers(): IncomingHttpHeaders {
    return this.#payload.headers
  }

  /** Adds elapsed time. Returns the reason when the body has taken too long; undefined otherwise. */
  age(passed: Millis, stalled: Millis, whole: Millis): string | undefined {
    this.#ageMs += passed
    this.#stalledMs = this.moved > 0 ? 0 : this.#stalledMs + passed
    this.moved = 0
    if (this.#stalledMs >= stalled) return `no byte of the body came for ${formatDuration(stalled)}`
    return this.#ageMs >= whole ? `the body took longer than ${formatDuration(whole)}` : undefined
  }

  begin(): void {
    const payload = this.#payload
    payload.on('data', this.#onData)
    payload.on('end', this.#onEnd)
    payload.on('error', this.#onError)
    // Starts reading before data has arrived, so that Node passes data on at once instead of in the next tick.
    payload.read(0)
  }

  /** Stops reading the body; `error` says why. */
  fail(error: BodyRefusal): void {
    const payload = this.#payload
    payload.off('data', this.#onData)
    payload.off('end', this.#onEnd)
    payload.off('error', this.#onError)
    // Discards the rest of the body, and ignores the error when the client disconnects meanwhile.
    payload.on('error', ignore).resume()
    this.#done(error)
  }

  readonly #onData = (chunk: Buffer): void => {
    this.chunks++
    this.#sinceBreak += chunk.length
    this.#chunks.add(chunk, chunk.length === this.#declared)
    this.#bodies.came(this, chunk.length)
    if (this.#sinceBreak < BYTES_PER_TURN) return
    this.#sinceBreak = 0
    this.#payload.pause()
    this.#awaitsTurn = true
    void ownTurn(this.sender.address).then(() => {
      this.#awaitsTurn = false
      this.#payload.resume()
    })
  }

  readonly #onEnd = (): void => {
    // Decodes a large body in a separate turn; until then the body counts as unfinished.
    if (this.bytes < LARGE_TEXT) return this.#complete()
    this.#awaitsTurn = true
    void ownTurn(this.sender.address).then(() => during('request', () => this.#complete()))
  }

  #complete(): void {
    if (!this.#bodies.leave(this)) return
    const bytes = this.#chunks.takeBytes()
    const text = textOf(bytes)
    if (isDamaged(text, bytes, 0, bytes.length)) this.fail(notUtf8())
    else this.#done(null, text)
  }

  readonly #onError = (): void => {
    if (!this.#bodies.leave(this)) return
    this.fail(new BodyRefusal(400, 'Bad Request: the client left before its body was complete'))
  }
}
