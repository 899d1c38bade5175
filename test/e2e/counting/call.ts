import { type Json } from '../support/gateway.ts'
import { metaOf, headersOf } from '../support/modern-client.ts'
import { post, RawClient, type RawReply } from '../support/raw-client.ts'

/** What an agent was told of one call. */
export type Told =
  /** A result, or an error of the server's own. */
  | { readonly kind: 'result' | 'server_error' }
  /** An error of the gateway. */
  | { readonly kind: 'error'; readonly reason: string; readonly sent: unknown }
  /** No JSON-RPC response at all, or none in time. */
  | { readonly kind: 'nothing'; readonly why: string }

export interface CallOptions {
  readonly key?: string
  readonly headers?: Readonly<Record<string, string>>
}

/** Calls a tool of a server; always resolves. */
export type CallTool = (tool: string, args: Json, options?: CallOptions) => Promise<Told>

/** An agent of one era at an endpoint of the gateway. */
export async function agentOf(era: 'legacy' | 'modern', url: string): Promise<CallTool> {
  const send = era === 'legacy' ? await legacySender(url) : modernSender(url)
  let ids = 0
  return async (tool, args, { key, headers = {} } = {}) => {
    const meta = key === undefined ? undefined : { 'dev.breakwater/idempotency-key': key }
    const params = { name: tool, arguments: args, ...(meta === undefined ? {} : { _meta: meta }) }
    const id = `call-${++ids}`
    return inTime(
      send({ jsonrpc: '2.0', id, method: 'tools/call', params }, headers).then((reply) =>
        read(era, reply, id),
      ),
    )
  }
}

type Send = (message: Json, headers: Readonly<Record<string, string>>) => Promise<RawReply>

async function legacySender(url: string): Promise<Send> {
  const client = await RawClient.open(url)
  return (message, headers) => client.post(message, headers)
}

function modernSender(url: string): Send {
  return (message, headers) => {
    const { _meta, ...params } = message.params as Json
    const full = { ...message, params: { ...params, _meta: { ...metaOf(), ...(_meta as Json) } } }
    return post(url, JSON.stringify(full), { ...headersOf(full), ...headers })
  }
}

/** A response may come with any status, except that with sessions a 404 ends the agent's. */
function read(era: 'legacy' | 'modern', { status, messages, text }: RawReply, id: string): Told {
  const response = messages.find((message) => message.id === id && !('method' in message))
  if ((era === 'legacy' && status === 404) || response === undefined)
    return { kind: 'nothing', why: `HTTP ${status} ${text.slice(0, 100)}` }
  if (response.error === undefined) return { kind: 'result' }
  const { data } = response.error as { data?: Json }
  if (typeof data?.code !== 'string' || !data.code.startsWith('BW_')) return { kind: 'server_error' }
  return { kind: 'error', reason: String(data.reason), sent: data.sent }
}

/** Longer than any policy of the tests lets a call take. */
const PATIENCE_MS = 20_000

function inTime(told: Promise<Told>): Promise<Told> {
  return new Promise((resolve) => {
    const timer = setTimeout(
      () => resolve({ kind: 'nothing', why: `stuck for ${PATIENCE_MS} ms` }),
      PATIENCE_MS,
    )
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
