import type { Writable } from 'node:stream'

/** Writes lines to a stream. */
export interface LineWriter {
  /** A promise asks to wait: the reader is slower. Lines for a reader that has gone are dropped. */
  readonly write: (line: string) => Promise<void> | undefined
  /** Resolves when nobody reads any more. */
  readonly gone: Promise<void>
}

export function lineWriter(stream: Writable): LineWriter {
  let drained: Promise<void> | undefined
  let isGone = false
  const gone = new Promise<void>((resolve) => {
    const end = () => {
      isGone = true
      resolve()
    }
    stream.once('close', end)
    // Stays, for an error that nobody listens to ends the process.
    stream.on('error', end)
  })
  return {
    gone,
    write(line) {
      if (isGone || stream.write(`${line}\n`)) return undefined
      drained ??= Promise.race([new Promise<void>((resolve) => stream.once('drain', resolve)), gone]).then(
        () => {
          drained = undefined
        },
      )
      return drained
    },
  }
}
