import { parseExactly } from '../../protocol/json-parse.ts'
import type { RequestId } from '../../mesh/call.ts'
import { INVALID_PARAMS, isObject, METHOD_NOT_FOUND } from '../../protocol/jsonrpc.ts'
import { members, replaceAt, splice, type Edit } from '../../protocol/json-span.ts'
import type { Response } from '../respond.ts'

/** Methods whose results say how long and by whom they may be kept. */
const cacheable = new Set([
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
])

/** The legacy code for a resource that is not there; the modern one is that for invalid params. */
const RESOURCE_NOT_FOUND = -32002

/** An answer as a modern client expects it, under its own id: what a legacy server leaves out is added, nothing else is touched. */
export function modernise(method: string, id: RequestId, response: Response): Response {
  const { text, status, value, wire } = response
  if (wire !== undefined) return response
  const { result, error } = value ?? (parseExactly(text) as Record<string, unknown>)
  const top = text.indexOf('{')
  let ownId: Edit = { start: top + 1, end: top + 1, with: `"id":${JSON.stringify(id)},` }
  let body = top
  // One walk for both: a result may be long.
  for (const { key, start, end } of members(text, top)) {
    if (key === 'id') ownId = { start, end, with: JSON.stringify(id) }
    else if (key === 'result') body = start
  }
  if (isObject(error)) {
    const own = splice(text, [ownId])
    const isAbsent = error.code === RESOURCE_NOT_FOUND
    return {
      text: isAbsent ? replaceAt(own, ['error', 'code'], INVALID_PARAMS) : own,
      status: statusOf(error.code, status),
    }
  }
  const added = isObject(result) ? addition(method, result) : ''
  return {
    text: splice(text, added === '' ? [ownId] : [ownId, { start: body + 1, end: body + 1, with: added }]),
    status,
  }
}

/** Our own lost sessions are no business of a client that has none; unknown methods are 404 in this era. */
function statusOf(code: unknown, status: number): number {
  if (code === METHOD_NOT_FOUND) return 404
  return status === 404 ? 200 : status
}

/** What to put in front of the members that a result has; empty when it has all that it needs. */
function addition(method: string, result: Readonly<Record<string, unknown>>): string {
  const missing = 'resultType' in result ? [] : ['"resultType":"complete"']
  if (cacheable.has(method)) {
    if (!('ttlMs' in result)) missing.push('"ttlMs":0')
    if (!('cacheScope' in result)) missing.push('"cacheScope":"private"')
  }
  if (missing.length === 0) return ''
  for (const _ in result) return `${missing.join()},`
  return missing.join()
}
