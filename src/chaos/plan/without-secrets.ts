import { isObject } from '../../protocol/jsonrpc.ts'

/**
 * A copy for people's eyes, of a fault or of whatever holds some: what a fault wants to see in the headers of a request
 * may be a key, so the values of `match.header` are not shown. It is of the same shape.
 */
export function withoutSecrets<Value>(value: Value): Value {
  return copied(value) as Value
}

function copied(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(copied)
  if (!isObject(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, held]) => [key, key === 'match' ? masked(held) : copied(held)]),
  )
}

function masked(match: unknown): unknown {
  if (!isObject(match) || !isObject(match.header)) return match
  const header = Object.fromEntries(Object.keys(match.header).map((name) => [name, '[redacted]']))
  return { ...match, header }
}
