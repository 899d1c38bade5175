/** What stands behind `/proxy/{server}` in a request's target, which has to be a path: it may be a whole URL. */
const TARGET = /^\/proxy\/[^/?#]+(\/[^?#]*)?(\?[^#]*)?$/

/** How often a path may be encoded. */
const MAX_ROUNDS = 4

export type ProxyPath =
  { readonly ok: true; readonly path: string } | { readonly ok: false; readonly why: string }

/**
 * The path that a request asks for below a server's folder, without its leading slash; `target`: as it came.
 * What servers read in more than one way is refused: nobody knows which of them this one takes.
 */
export function proxyPathOf(target: string): ProxyPath {
  const match = TARGET.exec(target)
  if (match === null) return refused('expected /proxy/{server}/path as the target of the request')
  const path = match[1] ?? '/'
  // What is not ASCII has to be encoded, and what is encoded has to be text.
  if (/[^\x21-\x7e]/.test(path) || !isEncoded(path)) return refused('the path is not encoded as one')
  const segments = path.split('/').length
  let text = path
  for (let round = 0; round < MAX_ROUNDS; round++) {
    if (/[\0-\x1f\x7f]/.test(text)) return refused('there is a control character in the path')
    if (text.includes('\\')) return refused('there is a backslash in the path')
    if (text.split('/').length !== segments) return refused('there is an encoded slash in the path')
    if (text.includes('//')) return refused('there is an empty segment in the path')
    // Some servers take what follows a semicolon for a parameter of the segment.
    if (text.split('/').some((segment) => /^\.\.?(;|$)/.test(segment)))
      return refused('there is a segment "." or ".." in the path')
    const plain = decoded(text)
    if (plain === text) return { ok: true, path: path.slice(1) }
    text = plain
  }
  return refused('the path is encoded over and over')
}

const refused = (why: string): ProxyPath => ({ ok: false, why })

function isEncoded(text: string): boolean {
  try {
    decodeURIComponent(text)
    return true
  } catch (error) {
    if (error instanceof URIError) return false
    throw error
  }
}

/** Each byte that is encoded as a character of its own; a % that encodes nothing stays, as lenient servers have it. */
const decoded = (text: string) =>
  text.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)))
