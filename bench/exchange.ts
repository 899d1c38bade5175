import type { Dispatcher, Pool } from 'undici'

export interface Reply {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: string
}

/** Makes an HTTP exchange by undici's cheapest way, because the load's CPU is taken from the subjects. */
export function exchange(pool: Pool, request: Dispatcher.DispatchOptions): Promise<Reply> {
  return new Promise((resolve, reject) => {
    let status = 0
    let headers: Reply['headers'] = {}
    const chunks: Buffer[] = []
    pool.dispatch(request, {
      onRequestStart() {},
      onResponseStart(_controller, code, received) {
        status = code
        headers = received
      },
      onResponseData(_controller, chunk) {
        chunks.push(chunk)
      },
      onResponseEnd() {
        const body = chunks.length === 1 ? String(chunks[0]) : Buffer.concat(chunks).toString()
        resolve({ status, headers, body })
      },
      onResponseError: (_controller, error) => reject(error),
    })
  })
}

/** A streamed reply that has not ended. */
export interface Stream {
  /** Ends the stream and its connection. */
  cancel(): void
  /** Resolves when the other side has ended the stream. */
  readonly ended: Promise<void>
}

/** Sends a request with a streamed reply. Resolves at the head of the reply; `take` gets text as the text arrives. */
export function streamed(
  pool: Pool,
  request: Dispatcher.DispatchOptions,
  take: (text: string) => void,
): Promise<Stream> {
  return new Promise((resolve, reject) => {
    let over: () => void
    const ended = new Promise<void>((done) => (over = done))
    pool.dispatch(request, {
      onRequestStart() {},
      onResponseStart(controller, status) {
        if (status !== 200) reject(new Error(`${request.path}: a stream was refused with ${status}`))
        resolve({ cancel: () => controller.abort(new Error('the stream is cancelled')), ended })
      },
      onResponseData: (_controller, chunk) => take(String(chunk)),
      onResponseEnd: () => over(),
      onResponseError(_controller, error) {
        over()
        reject(error)
      },
    })
  })
}
