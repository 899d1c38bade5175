import type { Signal } from '../../src/mesh/cancel.ts'
import {
  newRecord,
  type Answer,
  type Call,
  type Caller,
  type Channel,
  type Deadline,
  type Message,
} from '../../src/mesh/call.ts'
import { paramsOf, resultText } from '../../src/protocol/jsonrpc.ts'
import type { Era } from '../../src/protocol/versions.ts'

/** A message of a server, and the function to answer if the message is a request. */
export interface Received {
  readonly message: Message
  readonly answer: Answer | undefined
}

/** The `initialize` params of a client with every capability. */
export const capableClient = {
  protocolVersion: '2025-11-25',
  capabilities: { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } },
  clientInfo: { name: 'test-client', version: '1.0.0' },
}

/** Results, as JSON text, for requests of a server, by method. Other requests stay open. */
export type Replies = Readonly<Record<string, string>>

let callers = 0

/** A caller that records messages outside of calls, and answers by a script. */
export class TestCaller implements Caller {
  readonly id = `test-caller-${++callers}`
  readonly initializeParams: Caller['initializeParams']
  readonly listening = true
  readonly era: Era
  readonly received: Received[] = []
  readonly #replies: Replies

  constructor({
    initializeParams = capableClient,
    replies = {},
    era = 'legacy',
  }: {
    initializeParams?: Caller['initializeParams']
    replies?: Replies
    era?: Era
  } = {}) {
    this.initializeParams = initializeParams
    this.era = era
    this.#replies = replies
  }

  receive(_: string, message: Message, answer?: Answer): void {
    this.received.push({ message, answer })
    reply(this.#replies, message, answer)
  }

  /** Returns the messages with this method. */
  of(method: string): Message[] {
    return pick(this.received, method)
  }
}

/** A channel that records messages, answers by a script, and can be slowed down. */
export class TestChannel implements Channel {
  readonly received: Received[] = []
  /** Pauses announced by the upstream, in milliseconds. */
  readonly pauses: number[] = []
  opened = false
  readonly #replies: Replies
  #held: Promise<void> | undefined
  #release: () => void = () => undefined

  constructor(replies: Replies = {}) {
    this.#replies = replies
  }

  open(): void {
    this.opened = true
  }

  pause(retryMs: number): void {
    this.pauses.push(retryMs)
  }

  send(message: Message, answer?: Answer): Promise<void> | undefined {
    this.received.push({ message, answer })
    reply(this.#replies, message, answer)
    return this.#held
  }

  /** Makes senders wait from here on. */
  hold(): void {
    this.#held = new Promise((resolve) => (this.#release = resolve))
  }

  release(): void {
    this.#held = undefined
    this.#release()
  }

  /** Returns the messages with this method. */
  of(method: string): Message[] {
    return pick(this.received, method)
  }
}

function reply(replies: Replies, message: Message, answer: Answer | undefined): void {
  const result = replies[String(message.value.method)]
  // A server that has ended needs no answer.
  if (answer !== undefined && result !== undefined)
    answer(resultText('any id', result)).catch(() => undefined)
}

function pick(received: readonly Received[], method: string): Message[] {
  return received.map(({ message }) => message).filter(({ value }) => value.method === method)
}

export interface CallParts {
  readonly method: string
  readonly params?: Readonly<Record<string, unknown>>
  readonly id?: string | number
  /** The exact text of the request; by default the usual JSON of `method`, `params` and `id`. */
  readonly text?: string
  readonly server?: string
  readonly caller?: Caller
  readonly channel?: Channel
  readonly signal?: Signal
  readonly inbound?: Call['inbound']
  readonly tenant?: string
  /** Default: `tenant`. */
  readonly countsAs?: string
  /** Set by the operator unless `source` says otherwise. */
  readonly deadline?: Pick<Deadline, 'at' | 'reserveMs'> & Partial<Deadline>
  readonly attempt?: number
  readonly replica?: number
  /** When the call came, on the test's clock. */
  readonly startedAt?: number
}

let calls = 0

/** Makes a call like the gateway's edge, with a fresh id. */
export function newCall(parts: CallParts): Call {
  const { method, params = {}, server = 'test', signal = new AbortController().signal } = parts
  const id = parts.id ?? `call-${++calls}`
  const text = parts.text ?? JSON.stringify({ jsonrpc: '2.0', id, method, params })
  const value = JSON.parse(text) as Message['value']
  const { name } = paramsOf(value)
  return {
    server,
    method,
    tool: method === 'tools/call' ? String(name) : undefined,
    id: value.id as string | number,
    message: { text, value },
    headers: undefined,
    inbound: parts.inbound ?? {},
    tenant: parts.tenant ?? 'test',
    countsAs: parts.countsAs ?? parts.tenant ?? 'test',
    caller: parts.caller ?? new TestCaller(),
    channel: parts.channel ?? new TestChannel(),
    signal,
    deadline: parts.deadline && { askedFor: false, ...parts.deadline },
    attempt: parts.attempt ?? 1,
    replica: parts.replica,
    record: newRecord(parts.startedAt ?? 0),
  }
}

export function toolCall(
  name: string,
  args: Readonly<Record<string, unknown>> = {},
  parts: Partial<CallParts> = {},
): Call {
  return newCall({ method: 'tools/call', params: { name, arguments: args }, ...parts })
}
