import { isUtf8 } from 'node:buffer'
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { clientOf } from '../downstream/quotas.ts'
import { gatewayErrorText } from '../downstream/respond.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { ownTurn } from '../mesh/turns.ts'
import { during, LARGE_TEXT } from '../mesh/work.ts'
import { Chunks, textOf } from '../protocol/chunks.ts'
import { errorText, INVALID_REQUEST, PARSE_ERROR } from '../protocol/jsonrpc.ts'
import { formatDuration } from '../units/duration.ts'

export interface BodyLimits {
  /** What may have come of all bodies whose requests are not over, in bytes; never less than one largest body. */
  readonly total: number
  /** The same for one address of clients. */
  readonly perAddress: number
  /** Bodies that are not complete. */
  readonly count: number
  readonly countPerAddress: number
  /** How long nothing may come of a body, in milliseconds. */
  readonly stalled: Millis
  /** How long a body may take as a whole, in milliseconds. */
  readonly whole: Millis
}

/** Why a body was not read to its end: it took too long, or too much was on its way, over all or from one address. */
export const bodyRefusals = ['stalled', 'total', 'per_address'] as const

export type BodyRefusalCause = (typeof bodyRefusals)[number]

/**
 * Largest body of a request to `/mcp` that names neither a session nor a version of the protocol, in bytes: only the
 * `initialize` that begins a session does not, and what it may say fits into a quarter of that.
 */
export const MAX_FIRST_BODY = 64 * 1024

/**
 * So many chunks of a body may be as small as they like; more have to hold so many bytes on average. Node takes 20 µs and
 * more for each chunk, whatever is in it, and all of those that came at once: 64 KiB of such chunks hold up everybody for 0.3 s.
 */
const FREE_CHUNKS = 1_000
const LEAST_CHUNK = 16

/** So much of a body is read without a break, in bytes: many of them come at once, each with a socket buffer full. */
const BYTES_PER_TURN = 256 * 1024

/** From this size on a body counts until its request is over, in bytes: what is smaller is bounded by the number of calls. */
const HELD_FROM = 16 * 1024

/** How often bodies that are not complete are looked at, in milliseconds. */
const LOOK_MS: Millis = 1_000

/** Why a body of another kind is not read (415). */
export const NOT_JSON = 'Unsupported Media Type: the Content-Type must be application/json'

/** Why a body is not read, and what its sender is told. */
export class BodyRefusal extends Error {
  readonly statusCode: number
  /** The JSON-RPC error. */
  readonly text: string
  readonly headers: Readonly<Record<string, string>>

  constructor(statusCode: number, message: string, text?: string, headers: BodyRefusal['headers'] = {}) {
    super(message)
    this.statusCode = statusCode
    this.text = text ?? errorText(null, statusCode === 400 ? PARSE_ERROR : INVALID_REQUEST, message)
    this.headers = headers
  }
}

/** How long a body that was refused is read on, in milliseconds: then its connection is closed. */
const LINGER_MS: Millis = 2_000

/**
 * Answers a request whose body is not read. What is left of that is let come, and thrown away: a connection that is closed while bytes wait in
 * it is reset, and its client, which is still writing, never reads why (RFC 9112, 9.6). `text`: what it is told, if not in JSON-RPC.
 */
export function refuseBody(
  response: ServerResponse,
  refusal: BodyRefusal,
  clock: Clock,
  text = refusal.text,
): void {
  const request = response.req
  if (!request.complete) discard(request, clock)
  const length = Buffer.byteLength(text)
  const head = {
    ...refusal.headers,
    'content-type': 'application/json; charset=utf-8',
    'content-length': length,
  }
  response.writeHead(refusal.statusCode, head).end(text)
}

/** Has what is left of a body come, for a while, and unless it comes in chunks that are dear. */
function discard(request: IncomingMessage, clock: Clock): void {
  let [chunks, bytes] = [0, 0]
  const end = () => void request.socket.destroy()
  const cancel = clock.after(LINGER_MS, end)
  request
    .once('end', cancel)
    .once('close', cancel)
    .on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (!areTooSmall(++chunks, bytes)) return
      // Of what has been read already Node goes through the rest: paused, it costs a tenth.
      request.pause()
      end()
    })
    .resume()
}

/** Whether chunks cost more than their bytes are worth. */
const areTooSmall = (chunks: number, bytes: number) => chunks > FREE_CHUNKS && bytes < LEAST_CHUNK * chunks

type Done = (error: BodyRefusal | null, body?: string) => void

/** What is on its way from one address. */
interface Sender {
  readonly address: string
  count: number
  bytes: number
}

/**
 * Reads the bodies of requests: each costs its size, whatever it is cut into, and all together what the limits allow.
 * Who sends too slowly is told so and cut off.
 */
export class Bodies {
  readonly #clock: Clock
  readonly #maxBody: number
  readonly #maxFirst: number
  /** Up to this size the limits in bytes refuse no body. */
  readonly #smallest: number
  readonly #refused: (cause: BodyRefusalCause) => void
  /** The newest of those that are not complete; each knows its neighbours, for one comes and goes with each request. */
  #newest: Body | undefined
  readonly #senders = new Map<string, Sender>()
  #limits: BodyLimits
  #count = 0
  #bytes = 0
  #looking = false

  /**
   * `maxBody`: the largest body, in bytes; `maxFirst`: that of a request that names neither session nor version.
   * `refused` is told of each that is not read to its end.
   */
  constructor(
    clock: Clock,
    { maxBody, maxFirst = maxBody }: { readonly maxBody: number; readonly maxFirst?: number },
    limits: BodyLimits,
    refused: (cause: BodyRefusalCause) => void,
  ) {
    this.#clock = clock
    this.#maxBody = maxBody
    this.#maxFirst = Math.min(maxFirst, maxBody)
    this.#smallest = Math.min(HELD_FROM, maxBody / 4)
    this.#limits = limits
    this.#refused = refused
  }

  /** What has come of bodies that are not complete, and of those that are held, in bytes. */
  get bytes(): number {
    return this.#bytes
  }

  /** How many are not complete. */
  get count(): number {
    return this.#count
  }

  /** Other limits are in force. */
  tune(limits: BodyLimits): void {
    this.#limits = limits
  }

  /** Gives the body of a request as the text that it is in UTF-8; `done` hears a `BodyRefusal` where there is none to be had. */
  read(payload: IncomingMessage, done: Done): void {
    const { headers } = payload
    const declared = Number(headers['content-length'] ?? 0)
    const max = this.#maxOf(headers)
    if (declared > max) return done(this.#tooLarge(max))
    const sender = this.#senderOf(clientOf(payload.socket.remoteAddress))
    const body = new Body(this, { payload, declared, max, sender, done })
    this.#enter(body)
    const { count, countPerAddress } = this.#limits
    // Bodies of usual calls are complete at once, so the oldest unfinished body is a slow one.
    if (sender.count > countPerAddress)
      this.#refuse(this.#oldestOf(sender, body), 'per_address', sender.count - 1, countPerAddress)
    if (this.#count > count)
      this.#refuse(this.#oldestOf(this.#largest('count'), body), 'total', this.#count - 1, count)
    if (!body.isOpen) return
    if (!this.#looking) this.#lookLater()
    body.begin()
  }

  /** More of a body has come. */
  came(body: Body, bytes: number): void {
    const { sender } = body
    this.#bytes += bytes
    sender.bytes += bytes
    if (areTooSmall(body.chunks, body.bytes)) return this.#fail(body, tooSmallChunks(body))
    if (body.bytes > body.max) return this.#fail(body, this.#tooLarge(body.max))
    body.hasMoved = true
    // The limits in number bound small bodies. Bodies that are held for slow calls may fill the limits in bytes.
    if (body.bytes <= this.#smallest) return
    const total = Math.max(this.#limits.total, this.#maxBody)
    const perAddress = Math.max(this.#limits.perAddress, this.#maxBody)
    while (body.isOpen && sender.bytes > perAddress)
      this.#refuse(
        this.#oldestOf(sender, body, body.bytes),
        'per_address',
        sender.bytes,
        perAddress,
        'bytes of ',
      )
    while (body.isOpen && this.#bytes > total)
      this.#refuse(
        this.#oldestOf(this.#largest('bytes'), body, body.bytes),
        'total',
        this.#bytes,
        total,
        'bytes of ',
      )
  }

  /**
   * Returns the unfinished body that is refused when a limit is exceeded: the sender's oldest with more than `bytes`, or else `body`
   * itself. So an agent that leaves bodies unfinished makes room for others at the same address.
   */
  #oldestOf(sender: Sender, body: Body, bytes = -1): Body {
    let found = body
    for (let other = this.#newest; other !== undefined; other = other.older)
      if (other.sender === sender && other.bytes > bytes) found = other
    return found
  }

  #largest(by: 'count' | 'bytes'): Sender {
    return [...this.#senders.values()].reduce((one, other) => (other[by] > one[by] ? other : one))
  }

  /** A body is complete, and is kept until its request is over. `letGo` of it exactly once. */
  hold(client: string, bytes: number): void {
    if (bytes < HELD_FROM) return
    this.#senderOf(client).bytes += bytes
    this.#bytes += bytes
    if (!this.#looking) this.#lookLater()
  }

  letGo(client: string, bytes: number): void {
    if (bytes < HELD_FROM) return
    this.#senderOf(client).bytes -= bytes
    this.#bytes -= bytes
  }

  #senderOf(address: string): Sender {
    let sender = this.#senders.get(address)
    if (sender === undefined) this.#senders.set(address, (sender = { address, count: 0, bytes: 0 }))
    return sender
  }

  #enter(body: Body): void {
    const newest = this.#newest
    body.older = newest
    if (newest !== undefined) newest.newer = body
    this.#newest = body
    body.isOpen = true
    body.sender.count++
    this.#count++
  }

  /** A body is not on its way any more. False when it was not before. */
  leave(body: Body): boolean {
    if (!body.isOpen) return false
    const { older, newer, sender, bytes } = body
    if (older !== undefined) older.newer = newer
    if (newer !== undefined) newer.older = older
    else this.#newest = older
    // What is kept of a body must not keep all that came after it.
    body.older = body.newer = undefined
    body.isOpen = false
    sender.count--
    sender.bytes -= bytes
    this.#count--
    this.#bytes -= bytes
    return true
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

  #refuse(body: Body, cause: 'total' | 'per_address', now: number, limit: number, what = ''): void {
    const whose = cause === 'total' ? '' : ' from one address'
    const message = `too many ${what}request bodies on their way${whose} (${now}, limit ${limit})`
    const text = gatewayErrorText(null, gatewayError('overloaded', message, { retryAfterMs: 1_000 }), {})
    this.#refused(cause)
    this.#fail(body, new BodyRefusal(503, message, text, { 'retry-after': '1' }))
  }

  /**
   * One timer for all, which only runs while bodies are on their way, and once more. A body costs no look
   * at the clock, and may take up to a second longer than it should.
   */
  #lookLater(): void {
    this.#looking = true
    const since = this.#clock.now()
    this.#clock.after(LOOK_MS, () => {
      this.#looking = false
      this.#look(this.#clock.now() - since)
      for (const [address, { count, bytes }] of this.#senders)
        if (count === 0 && bytes === 0) this.#senders.delete(address)
      if (this.#senders.size > 0) this.#lookLater()
    })
  }

  /** Ends what takes too long, `passed` milliseconds after it was looked at last. */
  #look(passed: Millis): void {
    const { stalled, whole } = this.#limits
    for (let body = this.#newest, older; body !== undefined; body = older) {
      older = body.older
      const why = body.age(passed, stalled, whole)
      if (why === undefined) continue
      this.#refused('stalled')
      this.#fail(body, new BodyRefusal(408, `Request Timeout: ${why}`))
    }
  }
}

function tooSmallChunks({ bytes, chunks }: Body): BodyRefusal {
  const average = (bytes / chunks).toFixed(1)
  const message = `Bad Request: the body comes in chunks of ${average} bytes (at least ${LEAST_CHUNK} on average, after ${FREE_CHUNKS})`
  return new BodyRefusal(400, message)
}

interface BodyParts {
  readonly payload: IncomingMessage
  /** How long it says that it is, in bytes; 0 when it does not. */
  readonly declared: number
  /** How long it may be, in bytes. */
  readonly max: number
  readonly sender: Sender
  readonly done: Done
}

/** One body that is on its way. */
class Body {
  readonly sender: Sender
  readonly max: number
  /** Whether it is among those that are on their way, and between which. */
  isOpen = false
  older: Body | undefined
  newer: Body | undefined
  /** How many chunks have come. */
  chunks = 0
  /** Whether any of it came since it was looked at last. */
  hasMoved = true
  /** From the first look on, so that nobody is cut off too early. */
  #ageMs: Millis = -LOOK_MS
  #stalledMs: Millis = 0
  /** How much was read since the last break, in bytes. */
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

  /** So much time has passed. Why it has taken too long, in words; undefined when it has not. */
  age(passed: Millis, stalled: Millis, whole: Millis): string | undefined {
    this.#ageMs += passed
    this.#stalledMs = this.hasMoved ? 0 : this.#stalledMs + passed
    this.hasMoved = false
    if (this.#stalledMs >= stalled) return `nothing of the body came for ${formatDuration(stalled)}`
    return this.#ageMs >= whole ? `the body took longer than ${formatDuration(whole)}` : undefined
  }

  begin(): void {
    const payload = this.#payload
    payload.on('data', this.#onData)
    payload.on('end', this.#onEnd)
    payload.on('error', this.#onError)
    // Asks for what comes, before any of it has: then it is passed on at once instead of in the next tick.
    payload.read(0)
  }

  /** Nothing more is taken of it, and `error` says why. */
  fail(error: BodyRefusal): void {
    const payload = this.#payload
    payload.off('data', this.#onData)
    payload.off('end', this.#onEnd)
    payload.off('error', this.#onError)
    // What still comes is thrown away, and a client that leaves meanwhile is no error.
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
    void ownTurn(this.sender.address).then(() => this.#payload.resume())
  }

  readonly #onEnd = (): void => {
    // A large one becomes text in a turn of its own, until which it counts as one that is on its way.
    if (this.bytes < LARGE_TEXT) this.#complete()
    else void ownTurn(this.sender.address).then(() => during('request', () => this.#complete()))
  }

  #complete(): void {
    if (!this.#bodies.leave(this)) return
    const bytes = this.#chunks.takeBytes()
    const text = textOf(bytes)
    // What is no UTF-8 would be read as something else than what was sent: the replacement character stands for it then.
    if (text.includes('\ufffd') && !isUtf8(bytes))
      this.fail(new BodyRefusal(400, 'Parse error: the body is not UTF-8'))
    else this.#done(null, text)
  }

  readonly #onError = (): void => {
    if (!this.#bodies.leave(this)) return
    this.fail(new BodyRefusal(400, 'Bad Request: the client left before its body was complete'))
  }
}

/** Its sender was told already why it goes no further. */
function ignore(): void {}
