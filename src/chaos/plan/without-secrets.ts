import { isObject } from '../../protocol/jsonrpc.ts'

/**
 * A copy for people's eyes, of a fault or of whatever holds some: what a fault wants to see in the headers of a request, or
 * sends in those of a reply, may be a key, so the values of `match.header` and `headers` are not shown. It is of the same
 * shape.
 */
export function withoutSecrets<Value>(value: Value): Value {
  return copied(value) as Value
}

function copied(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(copied)
  if (!isObject(value)) return value
  const isFault = typeof value.type === 'string'
  return Object.fromEntries(
    Object.entries(value).map(([key, held]) => [
      key,
      key === 'match' ? withoutHeader(held) : key === 'headers' && isFault ? masked(held) : copied(held),
    ]),
  )
}

const withoutHeader = (match: unknown): unknown =>
  isObject(match) && isObject(match.header) ? { ...match, header: masked(match.header) } : match

const masked = (headers: unknown): unknown =>
  isObject(headers) ? Object.fromEntries(Object.keys(headers).map((name) => [name, '[redacted]'])) : headers
