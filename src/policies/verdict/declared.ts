import type { Partial } from '../../mesh/call.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { PARTIAL_KEY } from '../../protocol/meta.ts'

const MOST_MISSING = 20
const LONGEST_MISSING = 200
const LONGEST_REASON = 300

/** What a server declares to be missing of its result, bounded; undefined when it declares nothing. */
export function declaredPartial({ _meta }: Readonly<Record<string, unknown>>): Partial | undefined {
  const declared = isObject(_meta) ? _meta[PARTIAL_KEY] : undefined
  if (!isObject(declared)) return undefined
  const { reason, missing, completeness } = declared
  const named = Array.isArray(missing) ? missing.filter((item) => typeof item === 'string') : []
  return {
    source: 'declared',
    reason: typeof reason === 'string' ? clean(reason, LONGEST_REASON) : 'the server says that it is partial',
    ...(named.length > 0
      ? { missing: named.slice(0, MOST_MISSING).map((item) => clean(item, LONGEST_MISSING)) }
      : {}),
    ...(typeof completeness === 'number' ? { completeness: Math.min(1, Math.max(0, completeness)) } : {}),
    notice: false,
  }
}

function clean(text: string, longest: number): string {
  return text.slice(0, longest).replace(/\p{Cc}/gu, ' ')
}
