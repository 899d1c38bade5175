import { createHash } from 'node:crypto'
import { constants, createReadStream, fstat, open } from 'node:fs'
import { stat } from 'node:fs/promises'
import { Socket } from 'node:net'
import { promisify } from 'node:util'
import { type Millis, systemClock } from '../../mesh/clock.ts'

/** Largest config file. A gateway with a thousand servers needs a third of this. */
const MAX_BYTES = 1024 ** 2

/** Maximum number of attempts to read a file that changes during the reading. */
const MAX_READS = 3

export type TextFile = { readonly text: string } | { readonly problem: string }

/**
 * Returns a hash of the result of a reading. It changes with the content of the file, or with the reason why reading
 * failed.
 */
export const digestOf = (read: TextFile): string =>
  createHash('sha256').update(JSON.stringify(read)).digest('hex')

type Bytes = Buffer | { readonly problem: string }

/**
 * Reads a UTF-8 file of at most 1 MiB, or a pipe, for example `<(sops -d config.yaml)`. Never rejects.
 *
 * `patience`: how long a pipe may take to be written, in milliseconds; unlimited by default. With `patience`, devices
 * are refused, because a terminal has no input until somebody types.
 */
export async function readText(path: string, patience?: Millis): Promise<TextFile> {
  try {
    for (let reads = 1; ; reads++) {
      const bytes = await readOnce(path, patience)
      if (bytes === 'changed') {
        if (reads < MAX_READS) continue
        return { problem: 'cannot be read: another process kept writing to it during every attempt' }
      }
      return 'problem' in bytes ? bytes : decoded(bytes)
    }
  } catch (error) {
    return unreadable(error)
  }
}

async function readOnce(path: string, patience: Millis | undefined): Promise<Bytes | 'changed'> {
  const before = await stat(path)
  const isDevice = before.isCharacterDevice()
  if (isDevice && patience !== undefined) return { problem: 'cannot be read: it is a device' }
  // A blocking open of a pipe without a writer would occupy a thread of the file system pool and keep the process
  // alive. A terminal opens at once, but its reads must block.
  const flags = isDevice ? constants.O_RDONLY : constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)
  const fd = await promisify(open)(path, flags)
  const isPipe = await promisify(fstat)(fd).then((found) => found.isFIFO())
  if (isPipe) return readPipe(fd, patience)
  const bytes = await readAll(createReadStream(path, { fd, end: MAX_BYTES }) as AsyncIterable<Buffer>)
  const after = await stat(path)
  const isSame = after.ino === before.ino && after.size === before.size && after.mtimeMs === before.mtimeMs
  return isSame || isDevice ? bytes : 'changed'
}

/** Reads a pipe to its end, or for at most `patience` milliseconds. */
async function readPipe(fd: number, patience: Millis | undefined): Promise<Bytes> {
  const pipe = new Socket({ fd, readable: true, writable: false })
  let isLate = false
  const cancel =
    patience &&
    systemClock.after(patience, () => {
      isLate = true
      pipe.destroy()
    })
  try {
    const bytes = await readAll(pipe as AsyncIterable<Buffer>)
    // The pipe may have been read at the start of the process; its content is then gone.
    if ('length' in bytes && bytes.length === 0)
      return { problem: 'cannot be read: it is a pipe without data' }
    return bytes
  } catch (error) {
    if (!isLate) throw error
    return { problem: `cannot be read: it is a pipe, and not all of it was written within ${patience} ms` }
  } finally {
    if (cancel) cancel()
    pipe.destroy()
  }
}

async function readAll(stream: AsyncIterable<Buffer>): Promise<Bytes> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of stream) {
    chunks.push(chunk)
    length += chunk.length
    if (length > MAX_BYTES) return { problem: 'the file is larger than 1 MiB, the limit of a config' }
  }
  return Buffer.concat(chunks)
}

function decoded(bytes: Buffer): TextFile {
  const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  // UTF-16 text contains NUL bytes, and so does a file that was not completely written to the disk.
  return text.includes('\0')
    ? { problem: 'cannot be read: it holds a NUL byte; save it as UTF-8 text' }
    : { text }
}

/** Returns the result for a file that cannot be opened. */
export const unreadable = (error: unknown): TextFile => ({
  problem: `cannot be read: ${whyUnreadable(error)}`,
})

export function whyUnreadable(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code
  switch (code) {
    case 'ENOENT':
      return 'no such file'
    case 'EISDIR':
      return 'it is a folder'
    case 'ENOTDIR':
      return 'a parent in its path is not a folder'
    case 'ENXIO':
      return 'it is a socket, or a missing device'
    case 'ELOOP':
      return 'its links lead in a circle'
    case 'EACCES':
      return 'no permission'
    case 'ERR_ENCODING_INVALID_ENCODED_DATA':
      return 'it is not UTF-8 text'
    default:
      return code ?? (error instanceof Error ? error.message : String(error))
  }
}
