import type { Json } from './gateway.ts'
import { headersOf, metaOf } from './modern-client.ts'
import { post, RawClient, type RawReply } from './raw-client.ts'

export type Told =
  /** A result, or an error of the server's own. */
  | { readonly kind: 'result' | 'server_error' }
  | { readonly kind: 'error'; readonly reason: string; readonly sent: unknown }
  /** No JSON-RPC response at all, or none in time. */
  | { readonly kind: 'nothing'; readonly why: string }

export interface AskOptions {
  readonly key?: string
  /** Default: a new id. */
  readonly id?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Timeout, in milliseconds. */
  readonly patienceMs?: number
}

/** Longer than any policy of the tests lets a call take. */
const PATIENCE_MS = 20_000

/** An agent of either era at an endpoint of the gateway; every outcome of a call is a value. */
export class Agent {
  readonly era: 'legacy' | 'modern'
  readonly url: string
  /** Undefined in the era without sessions. */
  readonly session: RawClient | undefined
  #ids = 0

  private constructor(era: 'legacy' | 'modern', url: string, session: RawClient | undefined) {
    this.era = era
    this.url = url
    this.session = session
  }

  /** Rejects when a legacy agent gets no session. */
  static async open(era: 'legacy' | 'modern', url: string): Promise<Agent> {
    if (era === 'modern') return new Agent(era, url, undefined)
    const session = await RawClient.open(url)
    if (session.session === '') throw new Error(`no session at ${url}: ${JSON.stringify(session.welcome)}`)
    return new Agent(era, url, session)
  }

  /** Calls a tool; always resolves. */
  call(tool: string, args: Json, options: AskOptions = {}): Promise<Told> {
    return this.ask('tools/call', { name: tool, arguments: args }, options)
  }

  /** Sends a request; always resolves. */
  ask(method: string, params: Json, options: AskOptions = {}): Promise<Told> {
    const { key, id = `call-${++this.#ids}`, headers = {}, patienceMs = PATIENCE_MS } = options
    const own = key === undefined ? {} : { 'dev.breakwater/idempotency-key': key }
    const meta = { ...(this.era === 'legacy' ? {} : metaOf()), ...own }
    const withMeta = Object.keys(meta).length === 0 ? params : { ...params, _meta: meta }
    const reply = this.#post({ jsonrpc: '2.0', id, method, params: withMeta }, headers)
    return inTime(
      reply.then((whole) => read(this.era, whole, id)),
      patienceMs,
    )
  }

  /** Cancels a request; resolves when the gateway has accepted the cancellation. */
  async cancel(id: string): Promise<void> {
    await this.session?.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id } })
  }

  #post(message: Json, headers: Readonly<Record<string, string>>): Promise<RawReply> {
    if (this.session !== undefined) return this.session.post(message, headers)
    return post(this.url, JSON.stringify(message), { ...headersOf(message), ...headers })
  }
}

export function talliesOf(told: readonly Told[]): Record<string, number> {
  const tallies: Record<string, number> = {}
  for (const end of told) {
    const word =
      end.kind === 'error' ? end.reason : end.kind === 'nothing' ? end.why.replace(/ \{.*$/s, '') : end.kind
    tallies[word] = (tallies[word] ?? 0) + 1
  }
  return tallies
}

/** A response may come with any status, except 404 in a session, which ends the session. */
function read(era: 'legacy' | 'modern', { status, messages, text }: RawReply, id: string): Told {
  const response = messages.find((message) => message.id === id && !('method' in message))
  if ((era === 'legacy' && status === 404) || response === undefined)
    return { kind: 'nothing', why: `HTTP ${status} ${text.slice(0, 100)}` }
  if (response.error === undefined) return { kind: 'result' }
  const { data } = response.error as { data?: Json }
  if (typeof data?.code !== 'string' || !data.code.startsWith('BW_')) return { kind: 'server_error' }
  return { kind: 'error', reason: String(data.reason), sent: data.sent }
}

function inTime(told: Promise<Told>, patienceMs: number): Promise<Told> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve({ kind: 'nothing', why: 'stuck' }), patienceMs)
    void told
      .catch((error: unknown): Told => ({ kind: 'nothing', why: causeOf(error) }))
      .then((end) => {
        clearTimeout(timer)
        resolve(end)
      })
  })
}

function causeOf(error: unknown): string {
  const { message, cause } = error as { message: string; cause?: { message?: string } }
  return cause?.message ?? message
}
