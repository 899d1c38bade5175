/** What the reader of a request is told when its connection ends before it does, over HTTP/1.1 and over HTTP/2. */
const codes: readonly unknown[] = ['ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE']

/**
 * Lets what a server of a test does with a request come to nothing when the request breaks off: that one was none. As a
 * rejection that nobody handles it would fail all tests of the file.
 */
export function orBrokenOff(taken: Promise<unknown>): void {
  taken.catch((error: unknown) => {
    if (!codes.includes((error as NodeJS.ErrnoException).code)) throw error
  })
}
