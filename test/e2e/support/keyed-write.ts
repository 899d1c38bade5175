import type { Json } from './gateway.ts'
import { RawClient } from './raw-client.ts'

/** Calls `tool` of an endpoint under an idempotency key, in a session of its own; undefined when the reply breaks off. */
export async function keyedWrite(url: string, key: string, tool = 'write'): Promise<Json | undefined> {
  const params = { name: tool, arguments: { text: 'a' }, _meta: { 'dev.breakwater/idempotency-key': key } }
  const client = await RawClient.open(url)
  return client.request('tools/call', params).catch(() => undefined)
}

/** What a program can act on in the error of a response. */
export function dataOf(response: Json | undefined): Json {
  return ((response?.error ?? {}) as { data?: Json }).data ?? {}
}
