import type { Overlong } from './lines.ts'

const VERSION = '"jsonrpc"\\s*:\\s*"2\\.0"'
const ID = '"id"\\s*:\\s*(\\d+)'
const OUTCOME = '"(?:result|error)"'

/** `{"jsonrpc":"2.0","id":7,"result":` …: the id stands before the outcome. */
const idFirst = new RegExp(
  `^\\s*\\{\\s*(?:${VERSION}\\s*,\\s*)?${ID}\\s*,\\s*(?:${VERSION}\\s*,\\s*)?${OUTCOME}\\s*:`,
)

/** `{"result":` … `,"jsonrpc":"2.0","id":7}`: the id stands behind it. */
const outcomeFirst = new RegExp(`^\\s*\\{\\s*(?:${VERSION}\\s*,\\s*)?${OUTCOME}\\s*:`)
const idLast = new RegExp(`,\\s*${ID}\\s*(?:,\\s*${VERSION}\\s*)?\\}\\s*$`)

/** The id of the request that an overlong line answers; undefined when it shows no such thing. */
export function repliedId({ head, tail }: Overlong): number | undefined {
  const found = idFirst.exec(head) ?? (outcomeFirst.test(head) ? idLast.exec(tail) : null)
  return found === null ? undefined : Number(found[1])
}
