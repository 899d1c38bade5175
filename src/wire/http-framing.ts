/** A piece of a reply: bytes of its body, or the framing of HTTP/1.1 around the body. */
export interface FramedPiece {
  readonly bytes: Buffer
  readonly isBody: boolean
}

/** Longest parsed head of a reply, in bytes; a longer head counts as body, and HTTP clients refuse longer heads. */
const LONGEST_HEAD = 16 * 1024

/** How far ahead the end of a head or size is searched per step, in bytes. */
const NEAR = 512

/** Separates the body of a reply from the framing of HTTP/1.1 (RFC 9112, sections 2.1 and 7.1). */
export class HttpFraming {
  isEventStream = false
  #part: 'head' | 'plain' | 'size' | 'data' | 'end of data' | 'trailers' = 'head'
  #text = ''
  #left = 0

  split(chunk: Buffer): FramedPiece[] {
    const pieces: FramedPiece[] = []
    // Bytes between two body parts form one piece.
    let aroundFrom = 0
    for (let at = 0; at < chunk.length;) {
      const { bytes, isBody } = this.#next(chunk.subarray(at))
      if (isBody && at > aroundFrom) pieces.push({ bytes: chunk.subarray(aroundFrom, at), isBody: false })
      at += bytes.length
      if (!isBody) continue
      pieces.push({ bytes, isBody })
      aroundFrom = at
    }
    if (chunk.length > aroundFrom) pieces.push({ bytes: chunk.subarray(aroundFrom), isBody: false })
    return pieces
  }

  #next(bytes: Buffer): FramedPiece {
    switch (this.#part) {
      case 'plain':
        return { bytes, isBody: true }
      case 'trailers':
        return { bytes, isBody: false }
      case 'head':
        return this.#until('\r\n\r\n', bytes, (head) => this.#readHead(head))
      case 'size':
        return this.#until('\r\n', bytes, (line) => {
          this.#left = Number.parseInt(line, 16)
          // The last chunk is empty; only trailers may follow.
          this.#part = this.#left > 0 ? 'data' : 'trailers'
        })
      case 'data': {
        const piece = { bytes: bytes.subarray(0, this.#left), isBody: true }
        this.#left -= piece.bytes.length
        if (this.#left === 0) this.#part = 'end of data'
        return piece
      }
      case 'end of data':
        return this.#until('\r\n', bytes, () => (this.#part = 'size'))
    }
  }

  #readHead(head: string): void {
    // An interim response precedes another response.
    if (/^HTTP\/1\.[01] 1\d\d/.test(head)) return
    this.isEventStream = /^content-type:\s*text\/event-stream/im.test(head)
    this.#part = /^transfer-encoding:.*\bchunked/im.test(head) ? 'size' : 'plain'
  }

  /** Returns the bytes up to the end of the mark, which may come in parts; examines at most the next `NEAR` bytes. */
  #until(mark: string, bytes: Buffer, found: (text: string) => void): FramedPiece {
    const before = this.#text.length
    const near = bytes.subarray(0, NEAR)
    const text = this.#text + near.toString('latin1')
    const at = text.indexOf(mark, Math.max(0, before - mark.length))
    if (at === -1) {
      this.#text = text
      if (text.length > LONGEST_HEAD) this.#part = 'plain'
      return { bytes: near, isBody: false }
    }
    this.#text = ''
    found(text.slice(0, at))
    return { bytes: bytes.subarray(0, at + mark.length - before), isBody: false }
  }
}
