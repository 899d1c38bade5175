import { once } from 'node:events'
import { createServer, type Http2Server, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { orBrokenOff } from './broken-off.ts'
import { spansIn, type ReceivedSpan } from './otlp-spans.ts'
import { until } from './until.ts'

/** A collector's behaviour: takes requests, answers with a gRPC status, or never answers. */
export type GrpcBehaviour = 'takes' | 'hangs' | { readonly status: number; readonly message: string }

/** One byte for compression, four for the length: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md. */
const PREFIX = 5

/** A collector of spans over OTLP gRPC on a free port, for the length of a test. */
export class OtlpGrpcReceiver {
  readonly spans: ReceivedSpan[] = []
  /** Headers of the requests so far. */
  readonly requests: IncomingHttpHeaders[] = []
  readonly port: number
  behaviour: GrpcBehaviour = 'takes'
  readonly #close: () => void

  static async start(t: Pick<TestContext, 'after'>): Promise<OtlpGrpcReceiver> {
    const server: Http2Server = createServer()
    const sessions = new Set<{ destroy(): void }>()
    server.on('session', (session) => sessions.add(session))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const receiver = new OtlpGrpcReceiver(port, () => {
      server.close()
      for (const session of sessions) session.destroy()
    })
    server.on('stream', (stream, headers) => orBrokenOff(receiver.#take(stream, headers)))
    t.after(() => receiver.close())
    return receiver
  }

  private constructor(port: number, close: () => void) {
    this.port = port
    this.#close = close
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`
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

  async #take(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void> {
    this.requests.push(headers)
    // A client that gives up resets the stream.
    stream.on('error', () => undefined)
    const chunks: Buffer[] = []
    for await (const chunk of stream) chunks.push(chunk as Buffer)
    if (stream.aborted) return
    if (this.behaviour === 'hangs') return
    const answer = { ':status': 200, 'content-type': 'application/grpc' }
    if (this.behaviour !== 'takes') {
      const { status, message } = this.behaviour
      stream.respond({ ...answer, 'grpc-status': status, 'grpc-message': message }, { endStream: true })
      return
    }
    this.spans.push(...spansIn(messageIn(Buffer.concat(chunks))))
    stream.respond(answer, { waitForTrailers: true })
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
    // An `ExportTraceServiceResponse` without fields has no bytes.
    stream.end(Buffer.alloc(PREFIX))
  }
}

/** Returns the single message of a unary request. */
function messageIn(body: Buffer): Buffer {
  const length = body.readUInt32BE(1)
  if (body.length !== PREFIX + length) throw new Error(`${body.length} bytes for a message of ${length}`)
  const message = body.subarray(PREFIX)
  return body[0] === 1 ? gunzipSync(message) : message
}
