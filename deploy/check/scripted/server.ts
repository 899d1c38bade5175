import type { ServerResponse } from 'node:http'
import { RawServer, sendJson } from '../../../test/e2e/support/raw-server.ts'
import type { Fate, Tool } from './script.ts'

/** Arguments of a scripted call: instructions to its tool. */
export interface Orders {
  /** Identifies the call, the same at each try. */
  readonly call: string
  readonly tries: readonly Fate[]
}

const number = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }

/** `price` checks arguments; `note` has no output schema. */
const tools: readonly {
  readonly name: Tool
  readonly inputSchema: object
  readonly outputSchema?: object
}[] = [
  { name: 'price', inputSchema: { type: 'object', required: ['item'] }, outputSchema: number },
  { name: 'stock', inputSchema: { type: 'object' }, outputSchema: number },
  { name: 'note', inputSchema: { type: 'object' } },
  { name: 'audit', inputSchema: { type: 'object' }, outputSchema: number },
  { name: 'slow', inputSchema: { type: 'object' }, outputSchema: number },
]

const content = [{ type: 'text', text: 'said' }]

/** Replies by the verdict expected of the gateway. A missing entry means no reply. */
const replies: Partial<Record<Fate, object>> = {
  correct: { result: { content, structuredContent: { n: 1 } } },
  unchecked: { result: { content } },
  partial_declared: {
    result: { content, structuredContent: { n: 1 }, _meta: { 'dev.breakwater/partial': { reason: 'half' } } },
  },
  schema_invalid: { result: { content, structuredContent: { n: 'one' } } },
  tool_error: { result: { content, isError: true } },
  rpc_error: { error: { code: -32603, message: 'Internal error' } },
  caller_error: { error: { code: -32602, message: 'Invalid params' } },
}

/** A server whose tools obey the arguments of each call. */
export class ScriptedServer {
  readonly url: string
  /** How often each call has come. */
  readonly #tries: ReadonlyMap<string, number>

  private constructor(url: string, tries: ReadonlyMap<string, number>) {
    this.url = url
    this.#tries = tries
  }

  static async start(): Promise<ScriptedServer> {
    const tries = new Map<string, number>()
    const { url } = await RawServer.start(({ message: { id, method, params } }, response) => {
      if (method === 'tools/list') return answer(response, id, { result: { tools } })
      if (method !== 'tools/call') return false
      const orders = (params as { arguments: Orders }).arguments
      const tried = tries.get(orders.call) ?? 0
      tries.set(orders.call, tried + 1)
      const fate = orders.tries[tried] ?? 'correct'
      if (fate === 'transport_error') response.destroy()
      else if (replies[fate] !== undefined) answer(response, id, replies[fate])
    })
    return new ScriptedServer(url, tries)
  }

  has(call: string): boolean {
    return this.#tries.has(call)
  }
}

function answer(response: ServerResponse, id: unknown, body: object): void {
  sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, ...body }))
}
