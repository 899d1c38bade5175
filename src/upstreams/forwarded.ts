import type { Caller } from '../mesh/call.ts'
import { isOfOneRequest } from '../protocol/task.ts'

type Headers = Readonly<Record<string, string | string[] | undefined>>

/** The headers of an agent that a server gets, under their new names; `names` maps the old ones to them, lower case. */
function chosenOf(
  names: Readonly<Record<string, string>>,
  headers: Headers,
  isWanted?: (name: string) => boolean,
): Readonly<Record<string, string>> | undefined {
  let chosen: Record<string, string> | undefined
  for (const name in names) {
    const value = headers[name]
    const to = names[name] as string
    if (typeof value === 'string' && isWanted?.(to) !== false) (chosen ??= {})[to] = value
  }
  return chosen
}

const isOfAll = (name: string) => !isOfOneRequest(name)

/** The headers of an agent that a server gets with all requests of a session, under their new names; `headers`: those that it began with. */
export function forwarded(
  names: Readonly<Record<string, string>>,
  headers: Headers | undefined,
): Readonly<Record<string, string>> | undefined {
  return headers && chosenOf(names, headers, isOfAll)
}

/**
 * The headers of an agent that a server gets with a request: those that came with it, and of the others those that its
 * session began with. Who is told apart by them is told apart by all of them.
 */
export function forwardedWith(
  names: Readonly<Record<string, string>>,
  headers: Headers,
  { headers: first }: Pick<Caller, 'headers'>,
): Readonly<Record<string, string>> | undefined {
  const own = chosenOf(names, headers)
  const begun = forwarded(names, first)
  return begun === undefined || own === undefined ? (own ?? begun) : { ...begun, ...own }
}
