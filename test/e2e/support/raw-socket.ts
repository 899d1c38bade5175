import { connect, type Socket } from 'node:net'
import type { Json } from './gateway.ts'

/** Returns the head of a POST to a URL, with these headers and the usual headers. */
export function headOf(url: string, headers: Readonly<Record<string, string>>): string {
  const { host, pathname } = new URL(url)
  const all = {
    host,
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...headers,
  }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return `POST ${pathname} HTTP/1.1\r\n${lines.join('')}\r\n`
}

export function postOf(url: string, headers: Readonly<Record<string, string>>, body: Json): string {
  const text = JSON.stringify(body)
  return headOf(url, { ...headers, 'content-length': String(Buffer.byteLength(text)) }) + text
}

/** A connection to an endpoint that sends anything, valid HTTP or not. */
export class RawSocket {
  readonly socket: Socket
  readonly #head: string
  text = ''
  isClosed = false

  private constructor(socket: Socket, head: string) {
    this.socket = socket
    this.#head = head
    socket.on('data', (chunk: Buffer) => (this.text += chunk.toString('latin1')))
    socket.on('error', () => undefined)
    socket.once('close', () => (this.isClosed = true))
  }

  /** Connects to a URL's host from an address of this machine; `headers` join the usual headers of a POST. */
  static open(
    url: string,
    headers: Readonly<Record<string, string>> = {},
    { localAddress = '127.0.0.1', allowHalfOpen = false } = {},
  ): Promise<RawSocket> {
    const { hostname, port } = new URL(url)
    return new Promise((resolve, reject) => {
      const socket = connect({ port: Number(port), host: hostname, localAddress, allowHalfOpen })
      socket.once('error', reject)
      socket.once('connect', () => {
        socket.off('error', reject)
        resolve(new RawSocket(socket, headOf(url, headers)))
      })
    })
  }

  /** Sends the head of the POST, and the given part of its body. */
  begin(body: string | Buffer = ''): Promise<void> {
    return this.write(Buffer.concat([Buffer.from(this.#head), Buffer.from(body)]))
  }

  /** Resolves when the system has taken the bytes. */
  write(bytes: string | Buffer): Promise<void> {
    return new Promise((resolve) => this.socket.write(bytes, () => resolve()))
  }

  close(): void {
    this.socket.destroy()
  }
}
