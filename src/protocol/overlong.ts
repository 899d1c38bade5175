/** How much of either end of an overlong text is kept, in bytes or characters. */
export const ENDS = 512

/** The two ends of a text over a limit. */
export interface Overlong {
  readonly head: string
  readonly tail: string
}

export const endsOf = (text: string): Overlong => ({ head: text.slice(0, ENDS), tail: text.slice(-ENDS) })

/** Returns both ends without the words cut by the gap, because redaction does not recognise half a secret. */
export function wholeWords({ head, tail }: Overlong): Overlong {
  return { head: head.replace(/\S*$/, ''), tail: tail.replace(/^\S*/, '') }
}

const ID = '"id"\\s*:\\s*(\\d+)\\s*'

/** A member that fits into one end of a text as a whole, and does not make the message a request. */
const SMALL = '"(?!method")[^"\\\\]*"\\s*:\\s*(?:"[^"\\\\]*"|[-+.\\w]+)\\s*'

/** Matches `{"jsonrpc":"2.0","id":7,"result":` …, with the members before the outcome. */
const opening = new RegExp(`^\\s*\\{\\s*((?:${SMALL},\\s*)*)"(?:result|error)"\\s*:`)
const idBefore = new RegExp(`${ID},`)

/**
 * Matches … `,"jsonrpc":"2.0","id":7}`: members so close to the end are no part of the outcome. Some servers put a
 * comma behind the last member.
 */
const idBehind = new RegExp(`,\\s*${ID}(?:,\\s*${SMALL})*(?:,\\s*)?\\}\\s*$`)

/** Returns the id of the request that an overlong text answers; undefined when the ends show none. */
export function repliedId({ head, tail }: Overlong): number | undefined {
  const [, before] = opening.exec(head) ?? []
  if (before === undefined) return undefined
  const [, id] = idBefore.exec(before) ?? idBehind.exec(tail) ?? []
  return id === undefined ? undefined : Number(id)
}
