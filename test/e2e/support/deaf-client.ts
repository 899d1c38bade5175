import { connect, type Socket } from 'node:net'
import type { Json } from './gateway.ts'
import { postOf } from './raw-socket.ts'

/** Posts a message over its own connection, and reads nothing of the reply. */
export function postDeaf(
  url: string,
  headers: Readonly<Record<string, string>>,
  body: Json,
): Promise<DeafClient> {
  const { hostname, port } = new URL(url)
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname)
    socket.pause()
    socket.once('error', reject)
    socket.write(postOf(url, headers, body), () => {
      socket.off('error', reject)
      resolve(new DeafClient(socket))
    })
  })
}

/** A client that reads nothing until `read`. */
export class DeafClient {
  readonly #socket: Socket
  #text = ''
  isClosed = false

  constructor(socket: Socket) {
    this.#socket = socket
    socket.on('error', () => undefined)
    socket.once('close', () => (this.isClosed = true))
  }

  /** Reads to the end of the connection, or up to the text `end`. */
  async read(end: string): Promise<string> {
    await new Promise<void>((resolve) => {
      this.#socket.once('close', () => resolve())
      this.#socket.on('data', (chunk: Buffer) => {
        this.#text += chunk.toString('latin1')
        if (this.#text.includes(end)) resolve()
      })
      this.#socket.resume()
    })
    return this.#text
  }

  close(): void {
    this.#socket.destroy()
  }
}
