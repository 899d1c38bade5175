import type { RequestId } from '../../mesh/call.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { locate, splice, type Edit, type Path } from '../../protocol/json-span.ts'
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
const METHOD_NOT_FOUND = -32601

/** An answer as a modern client expects it, under its own id: what a legacy server leaves out is added, nothing else is touched. */
export function modernise(method: string, id: RequestId, { text, status, value }: Response): Response {
  const { result, error } = value ?? (JSON.parse(text) as Record<string, unknown>)
  const edits = [edit(text, ['id'], JSON.stringify(id))]
  if (isObject(error)) {
    if (error.code === RESOURCE_NOT_FOUND) edits.push(edit(text, ['error', 'code'], '-32602'))
    return { text: splice(text, edits), status: statusOf(error.code, status) }
  }
  if (isObject(result)) edits.push(addition(text, result, missingIn(method, result)))
  return { text: splice(text, edits), status }
}

/** Our own lost sessions are no business of a client that has none; unknown methods are 404 in this era. */
function statusOf(code: unknown, status: number): number {
  if (code === METHOD_NOT_FOUND) return 404
  return status === 404 ? 200 : status
}

function missingIn(method: string, result: Readonly<Record<string, unknown>>): string[] {
  const missing = 'resultType' in result ? [] : ['"resultType":"complete"']
  if (!cacheable.has(method)) return missing
  if (!('ttlMs' in result)) missing.push('"ttlMs":0')
  if (!('cacheScope' in result)) missing.push('"cacheScope":"private"')
  return missing
}

/** Puts members in front of those that the result has. */
function addition(text: string, result: Readonly<Record<string, unknown>>, members: readonly string[]): Edit {
  const start = (locate(text, ['result'])?.start ?? 0) + 1
  const comma = members.length > 0 && Object.keys(result).length > 0 ? ',' : ''
  return { start, end: start, with: members.join() + comma }
}

function edit(text: string, path: Path, by: string): Edit {
  const { start, end } = locate(text, path) ?? { start: 0, end: 0 }
  return { start, end, with: by }
}
