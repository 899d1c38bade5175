import { connect, type Socket } from 'node:net'

/** A connection to an endpoint that says what it is told to, however little that looks like HTTP. */
export class RawSocket {
  readonly #socket: Socket
  readonly #head: string
  /** All that has come back. */
  text = ''
  isClosed = false

  private constructor(socket: Socket, head: string) {
    this.#socket = socket
    this.#head = head
    socket.on('data', (chunk: Buffer) => (this.text += chunk.toString('latin1')))
    socket.on('error', () => undefined)
    socket.once('close', () => (this.isClosed = true))
  }

  /**
   * Connects to where a URL points, from an address of this machine; the head of a POST to it has these headers besides
   * the usual ones.
   */
  static open(
    url: string,
    headers: Readonly<Record<string, string>> = {},
    localAddress = '127.0.0.1',
  ): Promise<RawSocket> {
    const { hostname, port, pathname } = new URL(url)
    const all = {
      host: `${hostname}:${port}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headers,
    }
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
    return new Promise((resolve, reject) => {
      const socket = connect({ port: Number(port), host: hostname, localAddress })
      socket.once('error', reject)
      socket.once('connect', () => {
        socket.off('error', reject)
        resolve(new RawSocket(socket, `POST ${pathname} HTTP/1.1\r\n${lines.join('')}\r\n`))
      })
    })
  }

  /** Sends the head of the POST, and what has come of its body. */
  begin(body: string | Buffer = ''): Promise<void> {
    return this.write(Buffer.concat([Buffer.from(this.#head), Buffer.from(body)]))
  }

  /** Resolves when the system has taken it. */
  write(bytes: string | Buffer): Promise<void> {
    return new Promise((resolve) => this.#socket.write(bytes, () => resolve()))
  }

  close(): void {
    this.#socket.destroy()
  }
}
