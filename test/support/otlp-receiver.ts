import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'
import { orBrokenOff } from './broken-off.ts'
import { pointsIn, type ReceivedPoint } from './otlp-points.ts'
import { spansIn, type ReceivedSpan } from './otlp-spans.ts'
import { until } from './until.ts'

/** A collector accepts, answers with a status and the request's headers, never answers, or never ends its answer. */
export type Behaviour = 'takes' | 'hangs' | 'drips' | { readonly status: number }

/** Begins a good answer with a byte now and then, and no end. */
function drip(response: ServerResponse): void {
  response.writeHead(200)
  const drops = setInterval(() => response.write('x'), 20)
  response.once('close', () => clearInterval(drops))
}

/** A collector of spans and metrics over OTLP http/protobuf on a free port, for the length of a test. */
export class OtlpReceiver {
  readonly spans: ReceivedSpan[] = []
  /** The points of the latest request for each metric. */
  readonly points = new Map<string, readonly ReceivedPoint[]>()
  /** Paths of the requests so far. */
  readonly paths: string[] = []
  /** Headers of the requests so far. */
  readonly headers: IncomingHttpHeaders[] = []
  readonly url: string
  behaviour: Behaviour = 'takes'
  readonly #close: () => void

  static async start(t: Pick<TestContext, 'after'>): Promise<OtlpReceiver> {
    const server = createServer((request, response) => orBrokenOff(receiver.#take(request, response)))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const receiver = new OtlpReceiver(`http://127.0.0.1:${port}`, () => {
      server.close()
      server.closeAllConnections()
    })
    t.after(() => receiver.close())
    return receiver
  }

  private constructor(url: string, close: () => void) {
    this.url = url
    this.#close = close
  }

  /** Refuses connections from here on. Safe to call twice. */
  close(): void {
    this.#close()
  }

  /** Waits until `count` spans have come. */
  async has(count: number): Promise<readonly ReceivedSpan[]> {
    await until(`${count} spans`, () => this.spans.length >= count)
    return this.spans
  }

  of(kind: ReceivedSpan['kind']): ReceivedSpan[] {
    return this.spans.filter((span) => span.kind === kind)
  }

  #takePoints(points: readonly ReceivedPoint[]): void {
    for (const name of new Set(points.map(({ metric }) => metric)))
      this.points.set(
        name,
        points.filter(({ metric }) => metric === name),
      )
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.paths.push(request.url ?? '')
    this.headers.push(request.headers)
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    if (this.behaviour === 'hangs') return
    if (this.behaviour === 'drips') return drip(response)
    if (this.behaviour !== 'takes') {
      response.writeHead(this.behaviour.status).end(JSON.stringify(request.headers))
      return
    }
    const body = Buffer.concat(chunks)
    if (request.url === '/v1/metrics') this.#takePoints(pointsIn(body))
    else this.spans.push(...spansIn(body))
    response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
  }
}
