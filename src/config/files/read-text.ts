import { createReadStream } from 'node:fs'

/** Largest config file. A gateway with a thousand servers needs a third of it. */
const MAX_BYTES = 1024 ** 2

/** What a file holds, or why it cannot be read. */
export type TextFile = { readonly text: string } | { readonly problem: string }

/** Reads a UTF-8 file of at most 1 MiB; pipes will do too. Never rejects. */
export async function readText(path: string): Promise<TextFile> {
  try {
    const chunks: Buffer[] = []
    let bytes = 0
    for await (const chunk of createReadStream(path, { end: MAX_BYTES }) as AsyncIterable<Buffer>) {
      chunks.push(chunk)
      bytes += chunk.length
    }
    if (bytes > MAX_BYTES) return { problem: 'the file is larger than 1 MiB, the most that a config may be' }
    return { text: new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks)) }
  } catch (error) {
    return { problem: `cannot be read: ${whyUnreadable(error)}` }
  }
}

/** Why a file cannot be read, in words. */
export function whyUnreadable(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code
  switch (code) {
    case 'ENOENT':
      return 'no such file'
    case 'EISDIR':
      return 'it is a folder'
    case 'EACCES':
      return 'no permission'
    case 'ERR_ENCODING_INVALID_ENCODED_DATA':
      return 'it is not UTF-8 text'
    default:
      return code ?? String(error)
  }
}
