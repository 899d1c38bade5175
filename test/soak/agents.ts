import { setTimeout } from 'node:timers/promises'
import type { Json } from '../e2e/support/gateway.ts'
import { headersOf, metaOf } from '../e2e/support/modern-client.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { pick, seeded } from '../support/random.ts'
import { Fleet } from './fleet.ts'
import type { Sending } from './ledger.ts'

/** Longer than any call may take under the run's policies, in milliseconds; a longer call is unaccounted for. */
const PATIENCE_MS = 45_000

/** Longest pause of an agent between two actions, in milliseconds. */
const PAUSE_MS = 60

/** Maximum sends of one call, retries included. */
const MOST_SENDINGS = 3

const KEY = 'dev.breakwater/idempotency-key'
const INTENT = 'dev.breakwater/intent'

type Parting =
  /** Closes the connection after this delay, at any stage of the call. */
  | { readonly how: 'vanish'; readonly afterMs: number }
  /** Closes the connection at the first byte of the reply. */
  | { readonly how: 'vanish_in_reply' }
  /** Cancels the call after this delay. */
  | { readonly how: 'cancel'; readonly afterMs: number }

export interface Traffic {
  /** Returns the endpoint of one server, or of all. */
  readonly url: (server?: string) => string
  readonly sendings: Sending[]
  readonly lists: { answered: number; failed: number }
  readonly sessions: { opened: number; refused: number }
  isOver: boolean
}

/** An agent that keeps calling until the run is over. */
export async function agent(
  name: string,
  era: 'legacy' | 'modern',
  seed: number,
  traffic: Traffic,
): Promise<void> {
  const random = seeded(seed)
  for (let visit = 0; !traffic.isOver; visit++) {
    const server = random() < 0.25 ? undefined : pick(random, Fleet.names)
    const client = await open(`${name}-${visit}`, era, server, traffic)
    if (client === undefined) {
      await setTimeout(random() * PAUSE_MS)
      continue
    }
    const stream = era === 'legacy' && random() < 0.3 ? await client.listen() : undefined
    const many = 5 + Math.floor(random() * 60)
    for (let action = 0; action < many && !traffic.isOver; action++) {
      await client.act(random)
      await setTimeout(random() * PAUSE_MS)
    }
    stream?.abort()
    // Some agents leave silently; their sessions expire.
    if (random() < 0.8) await client.leave()
  }
}

async function open(
  name: string,
  era: 'legacy' | 'modern',
  server: string | undefined,
  traffic: Traffic,
): Promise<Client | undefined> {
  const url = traffic.url(server)
  if (era === 'modern') return new Client(name, url, server, traffic, undefined)
  const session = await RawClient.open(url).catch(() => undefined)
  if (session === undefined || session.session === '') {
    traffic.sessions.refused++
    return undefined
  }
  traffic.sessions.opened++
  return new Client(name, url, server, traffic, session)
}

/** An agent's client of one endpoint, in a session if the era has sessions. */
class Client {
  readonly #name: string
  readonly #url: string
  readonly #server: string | undefined
  readonly #traffic: Traffic
  readonly #session: RawClient | undefined
  #calls = 0

  constructor(
    name: string,
    url: string,
    server: string | undefined,
    traffic: Traffic,
    session: RawClient | undefined,
  ) {
    this.#name = name
    this.#url = url
    this.#server = server
    this.#traffic = traffic
    this.#session = session
  }

  /** Opens the session's stream; aborting it closes the connection. */
  async listen(): Promise<AbortController> {
    const abort = new AbortController()
    const headers = { ...this.#session?.headers, accept: 'text/event-stream' }
    const drain = async () => {
      const response = await fetch(this.#url, { headers, signal: abort.signal })
      for await (const _ of response.body ?? []) if (this.#traffic.isOver) break
    }
    // The stream may break at any time.
    void drain().catch(() => undefined)
    return Promise.resolve(abort)
  }

  async leave(): Promise<void> {
    await this.#session?.leave().catch(() => undefined)
  }

  async act(random: () => number): Promise<void> {
    const chance = random()
    if (chance < 0.08) return this.#list()
    const ms = random() < 0.7 ? 0 : Math.floor(random() * 80)
    if (chance < 0.4) return this.#try('read', ms, 0, false, 1)
    if (chance < 0.5) return this.#try('write', ms, 0, false, 1)
    // The agent retries a write without a key, and accepts a second run.
    if (chance < 0.53) return this.#try('write', ms, 0, false, 2)
    if (chance < 0.75) return this.#try('write', ms, 0, true, MOST_SENDINGS, this.#partingOf(random, 0.1))
    if (chance < 0.87) return this.#try('report', 40 + ms, 4, false, 1)
    return this.#try('report', 100 + ms, 4, random() < 0.3, 1, this.#partingOf(random, 1))
  }

  #partingOf(random: () => number, share: number): Parting | undefined {
    if (random() >= share) return undefined
    const afterMs = random() * 120
    const how = pick(random, ['vanish', 'vanish_in_reply', 'cancel'] as const)
    return how === 'vanish_in_reply' ? { how } : { how, afterMs }
  }

  async #list(): Promise<void> {
    const { lists } = this.#traffic
    const message = this.#message(`${this.#name}.list-${++this.#calls}`, 'tools/list', {})
    const response = await this.#post(message, AbortSignal.timeout(PATIENCE_MS))
      .then(async (reply) => responseIn(await reply.text(), message.id))
      .catch(() => undefined)
    if (response !== undefined && 'result' in response) lists.answered++
    else lists.failed++
  }

  /** Calls a tool, with retries after failures but never after an answer. */
  async #try(
    tool: Sending['tool'],
    ms: number,
    steps: number,
    hasKey: boolean,
    most: number,
    parting?: Parting,
  ): Promise<void> {
    const server = this.#server ?? Fleet.names[this.#calls % Fleet.names.length]
    const name = this.#server === undefined ? `${server}__${tool}` : tool
    const token = `${this.#name}.${++this.#calls}`
    for (let nth = 1; nth <= most; nth++) {
      const sending: Sending = { id: `${token}#${nth}`, token, tool, hasKey }
      this.#traffic.sendings.push(sending)
      // The intent identifies a call in the access log, under any id the gateway uses towards the server.
      const _meta = {
        progressToken: sending.id,
        [INTENT]: sending.id,
        ...(hasKey ? { [KEY]: token } : {}),
      }
      const params = { name, arguments: { token, ms, steps }, _meta }
      // An agent that retries stays to the end.
      await this.#send(
        sending,
        this.#message(sending.id, 'tools/call', params),
        nth === 1 ? parting : undefined,
      )
      if (sending.told === 'answered' || sending.told === undefined) return
    }
  }

  #message(id: string, method: string, params: Json): Json {
    const own = this.#session === undefined ? metaOf() : {}
    const _meta = { ...own, ...(params._meta as Json | undefined) }
    return { jsonrpc: '2.0', id, method, params: { ...params, _meta } }
  }

  #post(message: Json, signal: AbortSignal): Promise<Response> {
    const headers = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...(this.#session?.headers ?? headersOf(message)),
    }
    return fetch(this.#url, { method: 'POST', body: JSON.stringify(message), headers, signal })
  }

  async #send(sending: Sending, message: Json, parting: Parting | undefined): Promise<void> {
    const leaving = new AbortController()
    const isSaid = parting?.how === 'cancel' && this.#session !== undefined
    if (parting !== undefined && 'afterMs' in parting) {
      const leave = () => (isSaid ? this.#cancel(sending.id) : leaving.abort())
      void setTimeout(parting.afterMs).then(leave)
    }
    try {
      const signal = AbortSignal.any([leaving.signal, AbortSignal.timeout(PATIENCE_MS)])
      const reply = await this.#post(message, signal)
      if (parting?.how === 'vanish_in_reply') leaving.abort()
      note(sending, reply.status, await reply.text())
    } catch (error) {
      if (leaving.signal.aborted) sending.told = 'vanished'
      else sending.surprise = String((error as { cause?: unknown }).cause ?? error)
    }
    if (sending.told === undefined && isSaid && sending.surprise?.startsWith('no response') === true) {
      delete sending.surprise
      sending.told = 'cancelled'
    }
  }

  /** Cancels a call; the answer may have arrived already. */
  async #cancel(requestId: string): Promise<void> {
    const message = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } }
    await this.#session?.post(message).catch(() => undefined)
  }
}

/** Notes the outcome an agent got for a call. */
function note(sending: Sending, status: number, text: string): void {
  const response = responseIn(text, sending.id)
  if (response === undefined) {
    sending.surprise = `no response to it: HTTP ${status} ${text.slice(0, 200)}`
    return
  }
  const { content } = (response.result ?? {}) as { content?: { text?: string }[] }
  if (content?.[0]?.text === sending.token) return void (sending.told = 'answered')
  const { data } = (response.error ?? {}) as {
    data?: { code?: string; sent?: boolean; by?: string; reason?: string }
  }
  if (data?.code?.startsWith('BW_') === true) {
    sending.told = data.reason === 'cancelled' ? 'cancelled' : data.sent === false ? 'rejected' : 'failed'
    if (data.by !== undefined) sending.by = data.by
    return
  }
  sending.surprise = `not its own answer: ${text.slice(0, 300)}`
}

/** Returns the response to a request from a reply in JSON or events. */
function responseIn(text: string, id: unknown): Json | undefined {
  const texts = text.startsWith('{')
    ? [text]
    : text.split('\n').flatMap((line) => (line.startsWith('data: {') ? [line.slice('data: '.length)] : []))
  return texts
    .map((one) => JSON.parse(one) as Json)
    .find((message) => message.id === id && !('method' in message))
}
