/** How much of either end of an overlong text is kept, in bytes or characters. */
export const ENDS = 512

/** A text over a limit, of which only the two ends are kept. */
export interface Overlong {
  readonly head: string
  readonly tail: string
}

/** The same of a text that is there. */
export const endsOf = (text: string): Overlong => ({ head: text.slice(0, ENDS), tail: text.slice(-ENDS) })

/** Both ends without the words in which the text was cut: half of a secret is not known for one. */
export function wholeWords({ head, tail }: Overlong): Overlong {
  return { head: head.replace(/\S*$/, ''), tail: tail.replace(/^\S*/, '') }
}

const ID = '"id"\\s*:\\s*(\\d+)\\s*'

/** A member that fits into one end of a text as a whole, and does not make the message a request. */
const SMALL = '"(?!method")[^"\\\\]*"\\s*:\\s*(?:"[^"\\\\]*"|[-+.\\w]+)\\s*'

/** `{"jsonrpc":"2.0","id":7,"result":` …, with the members before the outcome. */
const opening = new RegExp(`^\\s*\\{\\s*((?:${SMALL},\\s*)*)"(?:result|error)"\\s*:`)
const idBefore = new RegExp(`${ID},`)

/** … `,"jsonrpc":"2.0","id":7}`: what stands so close to the end is no part of the outcome. Some put a comma behind the last member. */
const idBehind = new RegExp(`,\\s*${ID}(?:,\\s*${SMALL})*(?:,\\s*)?\\}\\s*$`)

/** The id of the request that an overlong text answers; undefined when it shows no such thing. */
export function repliedId({ head, tail }: Overlong): number | undefined {
  const [, before] = opening.exec(head) ?? []
  if (before === undefined) return undefined
  const [, id] = idBefore.exec(before) ?? idBehind.exec(tail) ?? []
  return id === undefined ? undefined : Number(id)
}
