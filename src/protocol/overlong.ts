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

/** Matches a small member (a string, number or word) other than `method`, which only requests have. */
const SMALL = '"(?!method")[^"\\\\]*"\\s*:\\s*(?:"[^"\\\\]*"|[-+.\\w]+)\\s*'

/**
 * Matches the start of a response up to its outcome, such as `{"jsonrpc":"2.0","id":7,"result":`. Captures the members
 * before the outcome.
 */
const opening = new RegExp(`^\\s*\\{\\s*((?:${SMALL},\\s*)*)"(?:result|error)"\\s*:`)
const idBefore = new RegExp(`${ID},`)

/**
 * Matches the members behind the outcome at the end of a response, such as `,"jsonrpc":"2.0","id":7}`. Allows a comma
 * behind the last member, which some servers write.
 */
const idBehind = new RegExp(`,\\s*${ID}(?:,\\s*${SMALL})*(?:,\\s*)?\\}\\s*$`)

/** Returns the id of the request that an overlong text answers; undefined when the two ends show no id. */
export function repliedId({ head, tail }: Overlong): number | undefined {
  const [, before] = opening.exec(head) ?? []
  if (before === undefined) return undefined
  const [, id] = idBefore.exec(before) ?? idBehind.exec(tail) ?? []
  return id === undefined ? undefined : Number(id)
}
