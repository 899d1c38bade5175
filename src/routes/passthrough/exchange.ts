import { IncomingMessage } from 'node:http'
import { Transform, type Readable } from 'node:stream'
import type { Dispatcher } from 'undici'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { plainHttpError, type PlainHttp } from '../../registry/plain-http.ts'
import { hopByHop } from '../../config/schema/header-schema.ts'

export interface ExchangeLimits {
  /** Largest request body, in bytes. */
  readonly maxBody: number
  /** Largest reply body, in bytes. */
  readonly maxReply: number
  /** How long all of it may take; undefined: as long as bytes flow. */
  readonly deadlineMs: Millis | undefined
}

export interface ExchangeParts {
  readonly way: PlainHttp
  /** The server's name in the registry. */
  readonly server: string
  /** Behind the server's folder; without a query. */
  readonly path: string
  readonly limits: ExchangeLimits
  readonly clock: Clock
}

/** Why an exchange failed; `status`: if that does not follow from the reason. */
export type Failure = GatewayError & { readonly status?: number }

export const bodyTooLarge = (bytes: number, sent: boolean): Failure => ({
  ...gatewayError('overloaded', `the body is larger than ${bytes} bytes (gateway.maxBody)`, { sent }),
  status: 413,
})

/** A request as reply-from hands it over. */
interface Handed {
  readonly method: Dispatcher.HttpMethod
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: Exclude<Dispatcher.RequestOptions['body'], undefined>
}

type Done = (error: Error | null, reply?: object) => void

/** Headers of the agent that are for the gateway, and never for a server. */
const ours = new Set(['authorization', 'cookie', 'mcp-session-id', 'origin'])

/** One request to a server by plain HTTP, and its reply, within their limits. */
export class Exchange {
  readonly #parts: ExchangeParts
  readonly #abort = new AbortController()
  readonly #cancel: () => void
  #failure: Failure | undefined

  /** Its time begins now, and ends with `end`. */
  constructor(parts: ExchangeParts) {
    this.#parts = parts
    const { deadlineMs } = parts.limits
    this.#cancel =
      deadlineMs === undefined
        ? () => undefined
        : parts.clock.after(deadlineMs, () => {
            const message = `not over within the deadline of ${deadlineMs} ms`
            this.#fail(gatewayError('deadline_exceeded', message, { sent: true }))
          })
  }

  /** Why it failed; undefined as long as it did not. */
  get failure(): Failure | undefined {
    return this.#failure
  }

  /** What is kept for it goes, and so does the request if nobody waits for its reply any more. Safe to call twice. */
  end(): void {
    this.#cancel()
    this.#fail(gatewayError('cancelled', 'the agent has gone', { sent: true }))
  }

  /** The body of the agent's request, within the limit. */
  limitedBody(body: Readable): Readable {
    const { maxBody } = this.#parts.limits
    return limited(body, maxBody, () => this.#fail(bodyTooLarge(maxBody, true)))
  }

  /** The headers for the server, of those that came: the operator's win. */
  requestHeaders(headers: Handed['headers']): Record<string, string | string[]> {
    return { ...withoutHop(headers, ours), ...this.#parts.way.headers }
  }

  /** Sends it once, `query` with its question mark: what may have run is not sent again. */
  send({ method, headers, body }: Handed, query: string, done: Done): void {
    const { way, path } = this.#parts
    if (this.#failure !== undefined) return done(new Error(this.#failure.message))
    const { signal } = this.#abort
    const request = { method, path: way.folder + path + query, headers: { ...headers }, body, signal }
    way.pool.request(request, (error, reply) => {
      if (error !== null) {
        this.#fail(plainHttpError(error))
        return done(error)
      }
      // Dropped below for whatever reason, it says so to nobody.
      reply.body.on('error', ignore)
      const failure = method === 'HEAD' ? undefined : this.#tooLarge(reply.headers['content-length'])
      if (failure !== undefined) {
        this.#fail(failure)
        reply.body.destroy()
        return done(new Error(failure.message))
      }
      const { maxReply } = this.#parts.limits
      const stream = limited(reply.body, maxReply, () => this.#fail(replyTooLarge(maxReply)))
      done(null, { statusCode: reply.statusCode, headers: this.#replyHeaders(reply.headers), body: stream })
    })
  }

  #tooLarge(length: string | string[] | undefined): GatewayError | undefined {
    const { maxReply } = this.#parts.limits
    return Number(length) > maxReply ? replyTooLarge(maxReply) : undefined
  }

  #replyHeaders(headers: Handed['headers']): Record<string, string | string[]> {
    const kept = withoutHop(headers)
    if (typeof kept.location === 'string') kept.location = this.#locationOf(kept.location)
    return kept
  }

  /** Where a redirection leads as the agent has to ask for it; what lies elsewhere stays as it is. */
  #locationOf(location: string): string {
    const { way, path, server } = this.#parts
    const here = way.origin + way.folder + path
    if (!URL.canParse(location, here)) return location
    const { origin, pathname, search, hash } = new URL(location, here)
    if (origin !== way.origin || !pathname.startsWith(way.folder)) return location
    return `/proxy/${encodeURIComponent(server)}/${pathname.slice(way.folder.length)}${search}${hash}`
  }

  /** The first failure is the one that counts. */
  #fail(failure: Failure): void {
    if (this.#failure !== undefined) return
    this.#failure = failure
    this.#abort.abort(new Error(failure.message))
  }
}

const replyTooLarge = (bytes: number) =>
  gatewayError('reply_too_large', `the reply is larger than ${bytes} bytes (maxReply)`, { sent: true })

/** Headers without those of one connection, those that `connection` names, and `others`. */
function withoutHop(headers: Handed['headers'], others: ReadonlySet<string> = new Set()) {
  const named = new Set(
    [headers.connection ?? []]
      .flat()
      .flatMap((value) => value.split(','))
      .map((name) => name.trim().toLowerCase()),
  )
  const kept: Record<string, string | string[]> = {}
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined && !hopByHop.has(name) && !named.has(name) && !others.has(name))
      kept[name] = value
  return kept
}

/** The same bytes, up to so many; past them `exceeded` is told, and the stream ends in an error. */
function limited(source: Readable, maxBytes: number, exceeded: () => void): Readable {
  let bytes = 0
  const gate = new Transform({
    transform(chunk: Buffer, _, done) {
      bytes += chunk.length
      if (bytes <= maxBytes) return done(null, chunk)
      source.unpipe(gate)
      exceeded()
      done(new Error(`more than ${maxBytes} bytes`))
    },
  })
  gate.on('error', ignore)
  // By hand: `pipeline` would destroy an agent's request, and with it the socket for our answer.
  source.once('error', (error) => gate.destroy(error))
  source.once('close', () => {
    if (!source.readableEnded) gate.destroy(new Error('it broke off'))
  })
  gate.once('close', () => {
    if (!(source instanceof IncomingMessage)) source.destroy()
  })
  return source.pipe(gate)
}

function ignore(): void {}
