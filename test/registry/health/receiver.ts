import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'
import { until } from '../../support/until.ts'

/** The fields of the three webhook formats that tests read. */
interface Body {
  readonly event?: string
  readonly incident?: Readonly<Record<string, unknown>>
  readonly text?: string
  readonly routing_key?: string
  readonly event_action?: string
  readonly dedup_key?: string
  readonly payload?: { readonly severity?: string; readonly source: string; readonly summary: string }
}

/** A request and its time on the receiver's clock. */
export interface Received {
  readonly path: string
  readonly headers: IncomingMessage['headers']
  readonly body: Body
  readonly at: number
  readonly status: number
}

type Answer = (request: Received, response: ServerResponse) => void

/** A webhook receiver: answers with each of `statuses` in turn, then with 200, unless `answer` decides. */
export async function startReceiver(t: TestContext, statuses: readonly number[] = [], answer?: Answer) {
  const received: Received[] = []
  const left = [...statuses]
  const server = createServer((request, response) => {
    let text = ''
    request.on('data', (chunk: Buffer) => (text += chunk.toString()))
    request.on('end', () => {
      const one = {
        path: request.url ?? '',
        headers: request.headers,
        body: JSON.parse(text) as Body,
        at: Date.now(),
        status: left.shift() ?? 200,
      }
      received.push(one)
      if (answer === undefined) response.writeHead(one.status).end('ok')
      else answer(one, response)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`
  return {
    url,
    received,
    /** Requests accepted with 2xx. */
    get taken() {
      return received.filter(({ status }) => status < 300)
    },
    came: (count: number) => until(`${count} requests came`, () => received.length >= count),
  }
}
