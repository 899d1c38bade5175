import { isObject } from '../../protocol/jsonrpc.ts'
import { locate, prependMember, splice } from '../../protocol/json-span.ts'
import type { Response } from '../respond.ts'

/** Methods whose results say how long and by whom they may be kept. */
const cacheable = new Set([
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
  'server/discover',
])

/** An answer as a modern client expects it: what a legacy server leaves out is added, nothing else is touched. */
export function modernise(method: string, response: Response): Response {
  const { text, status } = response
  const value = response.value ?? (JSON.parse(text) as Record<string, unknown>)
  if (isObject(value.error)) return moderniseError(text, value.error, status)
  const { result } = value
  const span = locate(text, ['result'])
  if (!isObject(result) || span === undefined) return { text, status }
  let whole = text.slice(span.start, span.end)
  if (cacheable.has(method) && !('cacheScope' in result)) whole = prependMember(whole, 'cacheScope', '"private"')
  if (cacheable.has(method) && !('ttlMs' in result)) whole = prependMember(whole, 'ttlMs', '0')
  if (!('resultType' in result)) whole = prependMember(whole, 'resultType', '"complete"')
  return { text: splice(text, [{ ...span, with: whole }]), status }
}

/** The legacy code for a resource that is not there is the modern one for invalid params. */
const RESOURCE_NOT_FOUND = -32002

function moderniseError(text: string, { code }: Readonly<Record<string, unknown>>, status: number): Response {
  if (code === -32601) return { text, status: 404 }
  if (code !== RESOURCE_NOT_FOUND) return { text, status: status === 404 ? 200 : status }
  const span = locate(text, ['error', 'code'])
  return { text: span === undefined ? text : splice(text, [{ ...span, with: '-32602' }]), status: 200 }
}
