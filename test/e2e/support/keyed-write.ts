import type { Json } from './gateway.ts'
import { RawClient } from './raw-client.ts'

/** Calls `tool` at an endpoint under an idempotency key, in a new session; undefined when the reply breaks off. */
export async function keyedWrite(url: string, key: string, tool = 'write'): Promise<Json | undefined> {
  const params = { name: tool, arguments: { text: 'a' }, _meta: { 'dev.breakwater/idempotency-key': key } }
  const client = await RawClient.open(url)
  return client.request('tools/call', params).catch(() => undefined)
}

/** Returns the machine-readable part of a response's error. */
export function dataOf(response: Json | undefined): Json {
  return ((response?.error ?? {}) as { data?: Json }).data ?? {}
}
