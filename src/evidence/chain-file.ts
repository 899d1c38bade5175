import type { KeyObject } from 'node:crypto'
import { open, stat } from 'node:fs/promises'
import { chainHash, ROOT } from '../chaos/journal/chain.ts'
import { isObject, parseJson } from '../protocol/jsonrpc.ts'

const LINE = /^\{"hash":"([0-9a-f]{64})","record":(.*)\}$/s

/** Bytes read at a time: between two reads other work goes on. */
const CHUNK = 128 * 1024

/** Longest line in bytes, several times the longest summary of a run. A longer line is no line of a journal. */
const LONGEST_LINE = 8 * 1024 ** 2

/** A chain as far as its lines are right. */
export interface ReadChainFile {
  /** Hash of each line. */
  readonly hashes: readonly string[]
  /** Bytes of these lines. */
  readonly bytes: number
  /** Bytes of a last line without an end; 0 for none. */
  readonly cutBytes: number
  /** The first wrong line, from 1, and why; undefined for a whole chain. */
  readonly broken: { readonly line: number; readonly why: string } | undefined
}

/**
 * Reads a chain of JSON lines piece by piece, and checks each line with the key. Calls `onRecord` for each record after
 * the first line. Undefined when there is no file. Rejects when the file cannot be read, and for anything but a regular
 * file: a pipe would wait for a writer, and a device may have no end.
 */
export async function readChainFile(
  path: string,
  key: KeyObject,
  onRecord: (record: Record<string, unknown>) => void,
): Promise<ReadChainFile | undefined> {
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
  })
  if (found === undefined) return undefined
  if (!found.isFile()) throw new Error(`${path} is no regular file`)
  const file = await open(path, 'r')
  const hashes: string[] = []
  let bytes = 0
  let rest: Buffer = Buffer.alloc(0)
  const check = (raw: string): string | undefined => {
    const [, hash, text] = LINE.exec(raw) ?? []
    const record = text === undefined ? undefined : parseJson(text)
    if (hash === undefined || text === undefined || !isObject(record)) return 'is no line of a journal'
    if (chainHash(key, hashes.at(-1) ?? ROOT, text) !== hash)
      return 'was changed, or made without the key, or a line before it is missing'
    if (hashes.push(hash) > 1) onRecord(record)
    return undefined
  }
  try {
    for (;;) {
      const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(CHUNK), 0, CHUNK)
      if (bytesRead === 0) break
      const text = Buffer.concat([rest, buffer.subarray(0, bytesRead)])
      let from = 0
      for (let end = text.indexOf(10, from); end !== -1; end = text.indexOf(10, from)) {
        const why = check(text.toString('utf8', from, end))
        if (why !== undefined) return { hashes, bytes, cutBytes: 0, broken: { line: hashes.length + 1, why } }
        bytes += end + 1 - from
        from = end + 1
      }
      rest = text.subarray(from)
      if (rest.length > LONGEST_LINE)
        return {
          hashes,
          bytes,
          cutBytes: 0,
          broken: { line: hashes.length + 1, why: 'is no line of a journal' },
        }
    }
  } finally {
    await file.close()
  }
  return { hashes, bytes, cutBytes: rest.length, broken: undefined }
}
