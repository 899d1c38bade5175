import type { Dispatcher, Pool } from 'undici'

/** One HTTP reply, whole. */
export interface Reply {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: string
}

/** One HTTP exchange, by the cheapest way that undici has: what the load costs is taken from the subjects. */
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
