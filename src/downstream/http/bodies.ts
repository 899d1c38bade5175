import { isUtf8 } from 'node:buffer'
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
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

export interface BodyLimits {
  /** Most received bytes of all bodies with open requests; at least two largest bodies. */
  readonly total: number
  /** The same for one client address. */
  readonly perAddress: number
  /** Most unfinished bodies after their first chunk, or a second after their head. */
  readonly count: number
  /** The same for one client address. */
  readonly countPerAddress: number
  /** How long a body may receive nothing, in milliseconds. */
  readonly stalled: Millis
  /** How long a whole body may take, in milliseconds. */
  readonly whole: Millis
}

export interface BodyRules {
  /** The largest body, in bytes. */
  readonly maxBody: number
  /** The largest body of a request that names neither session nor version, in bytes; default `maxBody`. */
  readonly maxFirst?: number
  /** Tells agents at one address apart by request headers; by default an address is one agent. */
  readonly agentOf?: (headers: IncomingHttpHeaders) => string
}

/** Why a body was not read to its end: it was too slow, or a limit in total or for one address was exceeded. */
export const bodyRefusals = ['stalled', 'total', 'per_address'] as const

export type BodyRefusalCause = (typeof bodyRefusals)[number]

/**
 * Largest body of a request to `/mcp` that names neither session nor protocol version, in bytes. Only the `initialize`
 * that begins a session omits both, and its params fit into a quarter of this limit.
 */
export const MAX_FIRST_BODY = 64 * 1024

/**
 * This many chunks of a body may be of any size; more chunks must reach an average size. Node spends 20 µs or more on
 * each chunk, and handles all waiting chunks at once: 64 KiB of tiny chunks block everybody for 0.3 s.
 */
const FREE_CHUNKS = 1_000
const LEAST_CHUNK = 16

/** Bytes of a body read without a break: many bodies arrive at once, each with a full socket buffer. */
const BYTES_PER_TURN = 256 * 1024

/** From this size on, in bytes, a body counts until its request ends. The limit on calls bounds smaller bodies. */
const HELD_FROM = 16 * 1024

/**
 * An agent may use four times the free part of a limit: four fifths of the limit when alone. So an agent always leaves
 * room for the next agent. The source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
 * switches" (1998).
 */
const TIMES_FREE = 4

/** Agents are told apart from this part of a limit on: usual bodies are complete at once, and few are unfinished. */
const TOLD_APART_FROM = 1 / 8

/** At a limit, bodies slower than this average are refused first, in bytes a second. */
const SLOW = 4_096

/** Interval between checks of incomplete bodies, in milliseconds. The first check gives each body a place. */
const LOOK_MS: Millis = 1_000

/** The error for a body of another content type (415). */
export const NOT_JSON = 'Unsupported Media Type: the Content-Type must be application/json'

/** Why a body is not read, with the error for its sender. */
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

/** How long the rest of a refused body is read, in milliseconds; then the connection is closed. */
const LINGER_MS: Millis = 2_000

/**
 * Answers a request without its body, and discards the rest: closing a connection with waiting bytes resets it, and a
 * client still writing never reads the answer (RFC 9112, 9.6). `text`: the answer, if not JSON-RPC.
 */
export function refuseBody(
  response: ServerResponse,
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
  // The length tells the client where the answer ends. Ending the response would make Node close a connection without
  // keep-alive, although body bytes still arrive.
  response.write(text)
  discard(request, clock, () => response.end())
}

/** Discards the rest of a body for a while, unless its chunks are too small. Calls `complete` at its end. */
function discard(request: IncomingMessage, clock: Clock, complete: () => void): void {
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
      // Node still emits the bytes already read; when paused, discarding the rest costs a tenth.
      request.pause()
      end()
    })
    .resume()
}

/** Whether chunks cost more CPU than their bytes justify. */
const areTooSmall = (chunks: number, bytes: number) => chunks > FREE_CHUNKS && bytes < LEAST_CHUNK * chunks

type Done = (error: BodyRefusal | null, body?: string) => void

/** Bodies are limited in number and in bytes. */
type Measure = 'count' | 'bytes'

/** An agent's unfinished bodies: large bodies, and bodies placed while the address had many unfinished ones. */
interface Share {
  count: number
  bytes: number
}

/** An address's bodies on their way, with the shares of its agents by name. */
interface Sender extends Share {
  readonly address: string
  readonly shares: Map<string, Share>
}

/** Returns the share of a body's agent; 1 while agents are not told apart. */
const has = ({ share }: Body, measure: Measure) => share?.[measure] ?? 1

/** Whether `own` of `all`, a newcomer included, is more than somebody may have. */
const isBeyond = (limit: number, all: number, own: number) => own > TIMES_FREE * (limit - all + 1)

/** Returns the share with the most, among shares with unfinished bodies; `own` unless another share has more. */
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
 * Reads request bodies. A body costs its size, however it is chunked, and all bodies together stay within the limits. A
 * client that sends too slowly gets an error and is disconnected.
 */
export class Bodies {
  readonly #clock: Clock
  readonly #maxBody: number
  readonly #maxFirst: number
  readonly #agentOf: (headers: IncomingHttpHeaders) => string
  /** Limits in bytes refuse no body up to this size. */
  readonly #smallest: number
  readonly #refused: (cause: BodyRefusalCause) => void
  /**
   * Bodies before their first chunk. Only the limit of connections bounds their number. An unfinished body gets a place
   * with its first chunk, or at the next check.
   */
  readonly #arriving = new Set<Body>()
  /** Unfinished bodies with a place, in a linked list, oldest place first. */
  #newest: Body | undefined
  #oldest: Body | undefined
  readonly #senders = new Map<string, Sender>()
  /** The limits in force; a reload replaces them. */
  limits: BodyLimits
  #count = 0
  #bytes = 0
  #looking = false

  /** Calls `refused` for each body not read to its end. */
  constructor(
    clock: Clock,
    { maxBody, maxFirst = maxBody, agentOf = () => '' }: BodyRules,
    limits: BodyLimits,
    refused: (cause: BodyRefusalCause) => void,
  ) {
    this.#clock = clock
    this.#maxBody = maxBody
    this.#maxFirst = Math.min(maxFirst, maxBody)
    this.#agentOf = agentOf
    this.#smallest = Math.min(HELD_FROM, maxBody / 4)
    this.limits = limits
    this.#refused = refused
  }

  /** Received bytes of incomplete and of held bodies. */
  get bytes(): number {
    return this.#bytes
  }

  /** Bodies with a place. */
  get count(): number {
    return this.#count
  }

  /** Reads the body of a request as UTF-8 text; passes `done` the text or a `BodyRefusal`. */
  read(payload: IncomingMessage, done: Done): void {
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

  /** Counts bytes received for a body. */
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
    // The limits in number bound small bodies. Bodies held for slow calls may fill the limits in bytes.
    if (body.bytes <= this.#smallest) return
    if (body.share === undefined) this.#share(body)
    const { total, perAddress } = this.limits
    this.#bound(body, 'bytes', Math.max(perAddress, 2 * this.#maxBody), Math.max(total, 2 * this.#maxBody))
  }

  /** From here on a body counts for its agent too. */
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
   * Refuses unfinished bodies until `body` fits, or refuses `body`: at its own address while its agent has too much,
   * and at the address with the most while `body`'s address has too much.
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

  /** Returns the slowest matching body with a place; among equals the oldest. Undefined when no body matches. */
  #slowest(isOne: (body: Body) => boolean): Body | undefined {
    let found: Body | undefined
    for (let body = this.#oldest; body !== undefined; body = body.newer)
      if (isOne(body) && (found === undefined || body.leastRate < found.leastRate)) found = body
    return found
  }

  /**
   * Returns the unfinished body to refuse at an address, by three rules in turn. First: the slowest body below 4 KiB a
   * second whose agent has at least half of the largest share (in bytes: half of the average), so many agents with
   * little each keep nobody out. Second: the slowest body of an agent with the largest share, except `body`, so the
   * newcomer is let in. Third: `body`. Speed decides, not age, since cheap newcomers would end every old body. A limit
   * in bytes spares small bodies, and the agent of `body` loses only a larger body.
   */
  #refusable(sender: Sender, body: Body, measure: Measure): Body {
    // An empty body is the slowest. Searching for each of many empty bodies would take quadratic time.
    if (body.bytes === 0) return body
    const own = body.sender === sender ? body.share : undefined
    const most = largestOf(sender.shares.values(), own, measure)?.[measure] ?? 1
    // One large newcomer must not protect all agents with fewer bytes.
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

  /** Counts a complete body until its request ends; the caller must call the returned function exactly once. */
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

  /** Gives a body a place and applies the limits in number. */
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

  /** Removes a finished or failed body. False when the body was already removed. */
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
    // A body kept in memory must not keep all later bodies.
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
        ? 'gateway.maxBody'
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
   * One timer for all bodies, which runs only while bodies are unfinished, and once more. A body needs no clock read,
   * and may take up to a second longer than its limit.
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

  /** Gives bodies without a place a place, and ends overdue bodies. `passed`: milliseconds since the last check. */
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

interface BodyParts {
  readonly payload: IncomingMessage
  /** The declared length in bytes; 0 when none is declared. */
  readonly declared: number
  /** The largest allowed length in bytes. */
  readonly max: number
  readonly sender: Sender
  readonly done: Done
}

class Body {
  readonly sender: Sender
  /** The agent's share, once agents are told apart. */
  share: Share | undefined
  readonly max: number
  /** Whether the body is still being read. */
  isOpen = true
  /** Neighbours in the list of places. */
  older: Body | undefined
  newer: Body | undefined
  chunks = 0
  /** Bytes received since the last check; starts at 1, so no body is cut off too early. */
  moved = 1
  /** Counts from the first check on, for the same reason. */
  #ageMs: Millis = -LOOK_MS
  #stalledMs: Millis = 0
  /** Whether reading pauses so that others get their turn. */
  #awaitsTurn = false
  /** Bytes read since the last break. */
  #sinceBreak = 0
  readonly #bodies: Bodies
  readonly #payload: IncomingMessage
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

  /** Whether the declared length has arrived. */
  get isWhole(): boolean {
    return this.bytes === this.#declared
  }

  /** Whether the average speed is too low; false before the first check, and while the gateway makes the body wait. */
  get isSlow(): boolean {
    return !this.#awaitsTurn && this.bytes < (SLOW * this.#ageMs) / 1_000
  }

  /** Lower bound of the average speed, in bytes a millisecond: checks are a second apart. */
  get leastRate(): number {
    return this.bytes / (this.#ageMs + 2 * LOOK_MS)
  }

  get headers(): IncomingHttpHeaders {
    return this.#payload.headers
  }

  /** Adds elapsed time. Returns why the body has taken too long; undefined when it has not. */
  age(passed: Millis, stalled: Millis, whole: Millis): string | undefined {
    this.#ageMs += passed
    this.#stalledMs = this.moved > 0 ? 0 : this.#stalledMs + passed
    this.moved = 0
    if (this.#stalledMs >= stalled) return `nothing of the body came for ${formatDuration(stalled)}`
    return this.#ageMs >= whole ? `the body took longer than ${formatDuration(whole)}` : undefined
  }

  begin(): void {
    const payload = this.#payload
    payload.on('data', this.#onData)
    payload.on('end', this.#onEnd)
    payload.on('error', this.#onError)
    // Requests data before any has arrived, so Node passes data on at once instead of in the next tick.
    payload.read(0)
  }

  /** Stops reading the body; `error` says why. */
  fail(error: BodyRefusal): void {
    const payload = this.#payload
    payload.off('data', this.#onData)
    payload.off('end', this.#onEnd)
    payload.off('error', this.#onError)
    // Discards the rest of the body; a client that leaves meanwhile is no error.
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
    // A large body becomes text in a separate turn, and counts as unfinished until then.
    if (this.bytes < LARGE_TEXT) return this.#complete()
    this.#awaitsTurn = true
    void ownTurn(this.sender.address).then(() => during('request', () => this.#complete()))
  }

  #complete(): void {
    if (!this.#bodies.leave(this)) return
    const bytes = this.#chunks.takeBytes()
    const text = textOf(bytes)
    // Decoding a body that is not UTF-8 would change it: replacement characters appear.
    if (text.includes('\ufffd') && !isUtf8(bytes))
      this.fail(new BodyRefusal(400, 'Parse error: the body is not UTF-8'))
    else this.#done(null, text)
  }

  readonly #onError = (): void => {
    if (!this.#bodies.leave(this)) return
    this.fail(new BodyRefusal(400, 'Bad Request: the client left before its body was complete'))
  }
}
