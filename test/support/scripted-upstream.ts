import type { Answer, Call, Caller, Message, Outcome } from '../../src/mesh/call.ts'
import type { Signal } from '../../src/mesh/cancel.ts'
import { verdictOf } from '../../src/mesh/classify.ts'
import { gatewayError, isGatewayError, type GatewayError } from '../../src/mesh/errors.ts'
import { paramsOf } from '../../src/protocol/jsonrpc.ts'
import { kindOfList } from '../../src/protocol/lists.ts'
import type { UpstreamSession, Upstream } from '../../src/upstreams/upstream.ts'
import type { Json } from './memory-pipe.ts'

/** The rest of a response, or the error that replaces the response. */
export type Reply = { readonly result: Json } | { readonly error: Json } | GatewayError

/** A server's reaction to a request. The caller ends a request that never settles. */
export type Script = (
  method: string,
  params: Json,
  upstreamSession: ScriptedSession,
) => Reply | Promise<Reply>

/** A tool with only the required fields. */
export const plainTool = (name: string) => ({ name, inputSchema: { type: 'object' } })

const everything = { tools: {}, prompts: {}, resources: {}, logging: {} }

/** A server's `initialize` result. */
export function initializeResult(capabilities: Json = everything, more: Json = {}): Message {
  const value = {
    protocolVersion: '2025-11-25',
    capabilities,
    serverInfo: { name: 'scripted', version: '1' },
    ...more,
  }
  return { text: JSON.stringify(value), value }
}

/** Answers each list with an empty list. */
const offersNothing: Script = (method) => {
  const kind = kindOfList(method)
  return { result: kind === undefined ? {} : { [kind]: [] } }
}

/** A scripted endpoint. */
export class ScriptedUpstream implements Upstream {
  /** All conversations so far, oldest first. */
  readonly upstreamSessions: ScriptedSession[] = []
  /** Number of handshakes tried. */
  attempts = 0
  /** While set, handshakes fail with this error. */
  refusal: GatewayError | undefined
  /** While set, handshakes wait for this promise. */
  gate: Promise<void> | undefined
  initializeResult = initializeResult()
  closed = 0
  readonly #script: Script

  constructor(script: Script = offersNothing) {
    this.#script = script
  }

  async open(caller: Caller, signal: Signal): Promise<UpstreamSession> {
    this.attempts++
    if (this.gate !== undefined) await unlessAborted(this.gate, signal)
    if (this.refusal !== undefined) throw this.refusal
    const upstreamSession = new ScriptedSession(caller, this.initializeResult, this.#script)
    this.upstreamSessions.push(upstreamSession)
    return upstreamSession
  }

  close(): Promise<void> {
    this.closed++
    return Promise.resolve()
  }

  /** Returns the newest conversation. */
  get upstreamSession(): ScriptedSession {
    return (
      this.upstreamSessions.at(-1) ??
      (() => {
        throw new Error('no conversation was begun')
      })()
    )
  }
}

/** A conversation with a scripted upstream. */
export class ScriptedSession implements UpstreamSession {
  keepsState = true
  readonly initializeResult: Message
  /** The requested methods, oldest first. */
  readonly asked: string[] = []
  readonly calls: Call[] = []
  readonly posts: string[] = []
  listening = false
  closes = 0
  readonly #caller: Caller
  readonly #script: Script
  readonly #end = new AbortController()

  constructor(caller: Caller, initializeResult: Message, script: Script) {
    this.#caller = caller
    this.initializeResult = initializeResult
    this.#script = script
  }

  get ended(): AbortSignal {
    return this.#end.signal
  }

  async exchange(call: Call): Promise<Outcome> {
    this.asked.push(call.method)
    this.calls.push(call)
    call.record.sent = true
    try {
      const params = paramsOf(call.message.value)
      const replied = Promise.resolve(this.#script(call.method, params, this))
      const reply = await unlessAborted(unlessAborted(replied, call.signal), this.ended)
      if (isGatewayError(reply)) return { kind: 'failed', error: reply }
      const value = { jsonrpc: '2.0', id: call.id, ...reply }
      const result = { text: JSON.stringify(value), value, status: 200 }
      return { kind: 'answered', result, verdict: verdictOf(value) }
    } catch (error) {
      return { kind: 'failed', error: error as GatewayError }
    }
  }

  post(text: string): Promise<void> {
    this.posts.push(text)
    return Promise.resolve()
  }

  listen(): void {
    this.listening = true
  }

  close(): Promise<void> {
    this.closes++
    this.end(gatewayError('cancelled', 'the conversation was closed'))
    return Promise.resolve()
  }

  /** Ends the conversation, as the server. */
  end(error: GatewayError = gatewayError('upstream_disconnected', 'the server is gone')): void {
    this.#end.abort(error)
  }

  /** Sends a message of the server outside of calls. */
  say(message: Json, answer?: Answer): void {
    const value = { jsonrpc: '2.0', ...message }
    this.#caller.receive('scripted', { text: JSON.stringify(value), value }, answer)
  }
}

function unlessAborted<T>(promise: Promise<T>, signal: Signal): Promise<T> {
  return new Promise((resolve, reject) => {
    const aborted = () => reject(signal.reason)
    if (signal.aborted) aborted()
    signal.addEventListener('abort', aborted, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', aborted))
  })
}
