import { ignore } from '../../mesh/cancel.ts'

/** A reply that is not read to its end; the message says why, behind the name of who sent it. */
export class BodyError extends Error {}

/**
 * The text of a reply to `fetch`. Rejects with a `BodyError` when it is longer than `maxBytes`, and as soon as `signal` aborts:
 * `fetch` may lose its listener when the request is garbage-collected, so the body is cancelled here.
 */
export async function bodyText(
  { body }: Response,
  { maxBytes, signal }: { readonly maxBytes: number; readonly signal: AbortSignal },
): Promise<string> {
  if (body === null) return ''
  const reader = body.getReader() as ReadableStreamDefaultReader<Uint8Array>
  // A body that is over or broken needs no cancelling.
  const leave = () => void reader.cancel().catch(ignore)
  signal.addEventListener('abort', leave)
  const chunks: Uint8Array[] = []
  let bytes = 0
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      chunks.push(read.value)
      if ((bytes += read.value.length) > maxBytes)
        throw new BodyError(`answers with more than ${maxBytes / 1024 ** 2} MiB`)
    }
    if (signal.aborted) throw new BodyError('was given up')
    return Buffer.concat(chunks).toString()
  } finally {
    signal.removeEventListener('abort', leave)
    leave()
  }
}
