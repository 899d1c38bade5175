import { once } from 'node:events'
import {
  createServer,
  request,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
} from 'node:http'
import { connect, type AddressInfo, type Socket } from 'node:net'
import type { TestContext } from 'node:test'
import { Quotas } from '../../src/downstream/limits/quotas.ts'
import { createBoundedServer } from '../../src/downstream/http/server.ts'
import { SseDecoder, type SseEvent } from '../../src/protocol/sse.ts'
import { defaultLimits } from './default-limits.ts'

/** A request over a real connection that the test answers, with everything its client has received. */
export interface Held {
  readonly response: ServerResponse
  readonly client: HeldClient
}

export class HeldClient {
  readonly headers: Promise<IncomingMessage>
  /** All bytes received. */
  text = ''
  /** Resolves when the connection or the reply has ended. */
  readonly ended: Promise<void>
  readonly #destroy: () => void

  constructor(headers: Promise<IncomingMessage>, destroy: () => void, reads: boolean) {
    this.headers = headers
    this.#destroy = destroy
    this.ended = headers.then(
      (incoming) => this.#read(incoming, reads),
      () => undefined,
    )
  }

  get events(): SseEvent[] {
    const events: SseEvent[] = []
    new SseDecoder(1024 ** 3, (event) => events.push(event)).feed(Buffer.from(this.text))
    return events
  }

  /** Returns the data of all events with data. */
  get data(): string[] {
    return this.events.map(({ data }) => data).filter((data) => data !== '')
  }

  /** Destroys the connection without a reply. */
  close(): void {
    this.#destroy()
  }

  async #read(incoming: IncomingMessage, reads: boolean): Promise<void> {
    if (!reads) return
    incoming.setEncoding('utf8').on('data', (text: string) => (this.text += text))
    incoming.on('error', () => undefined)
    await new Promise((resolve) => incoming.once('close', resolve))
  }
}

/** A server on a free port; the test answers every request. */
export async function holdResponses(t: TestContext) {
  const waiting: ((response: ServerResponse) => void)[] = []
  const server = createServer((_, response) => waiting.shift()?.(response))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  /** Sends a request. With `reads` false the client never reads; `accept` is its Accept header. */
  return async ({
    reads = true,
    accept,
  }: { readonly reads?: boolean; readonly accept?: string | undefined } = {}): Promise<Held> => {
    const said = accept === undefined ? {} : { accept }
    const outgoing = request({ port, host: '127.0.0.1', agent: false, path: '/', headers: said })
    const headers = once(outgoing, 'response').then(([incoming]) => incoming as IncomingMessage)
    const arrived = new Promise<ServerResponse>((resolve) => waiting.push(resolve))
    outgoing.on('error', () => undefined).end()
    return { client: new HeldClient(headers, () => outgoing.destroy(), reads), response: await arrived }
  }
}

/** Pipelines requests on one connection before the first answer; the test answers, and the client never reads. */
export async function holdPipelined(t: TestContext, count: number) {
  const responses: ServerResponse[] = []
  const sockets: Socket[] = []
  const quotas = new Quotas(defaultLimits.shares, () => undefined)
  const guards = { quotas, unread: { wrote: () => undefined } }
  let take: RequestListener = () => undefined
  const server = createBoundedServer((request, response) => take(request, response), guards)
  const all = new Promise<void>((resolve) => {
    take = (request, response) => {
      sockets.push(request.socket)
      if (responses.push(response) === count) resolve()
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1')
  client.on('error', () => undefined)
  t.after(() => {
    client.destroy()
    server.closeAllConnections()
    server.close()
  })
  client.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n'.repeat(count))
  await all
  const [socket] = sockets
  if (socket === undefined) throw new Error('no request came')
  return { responses, socket, client }
}
