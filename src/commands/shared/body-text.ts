import { ignore } from '../../mesh/cancel.ts'

/** Thrown when a reply was not read to its end. The message is a predicate: the name of the sender goes before it. */
export class BodyError extends Error {}

/**
 * Reads the text of a `fetch` reply. Rejects with a `BodyError` beyond `maxBytes`, and as soon as `signal` aborts. The
 * body is cancelled here, because `fetch` may lose its listener when the request is garbage-collected.
 */
export async function bodyText(
  { body }: Response,
  { maxBytes, signal }: { readonly maxBytes: number; readonly signal: AbortSignal },
): Promise<string> {
  if (body === null) return ''
  const reader = body.getReader() as ReadableStreamDefaultReader<Uint8Array>
  // `cancel` fails for a finished or broken body; this failure is harmless.
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
    if (signal.aborted) throw new BodyError('was aborted')
    return Buffer.concat(chunks).toString()
  } finally {
    signal.removeEventListener('abort', leave)
    leave()
  }
}
