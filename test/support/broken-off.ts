/** Errors for a reader whose request breaks off, over HTTP/1.1 and over HTTP/2. */
const codes: readonly unknown[] = ['ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE']

/** Ignores a handler's failure if its request broke off: the unhandled rejection would fail all tests of the file. */
export function orBrokenOff(taken: Promise<unknown>): void {
  taken.catch((error: unknown) => {
    if (!codes.includes((error as NodeJS.ErrnoException).code)) throw error
  })
}
