import type { Caller } from '../mesh/call.ts'
import { isOfOneRequest } from '../protocol/task.ts'

type Headers = Readonly<Record<string, string | string[] | undefined>>

/** Returns an agent's headers for a server under their new names; `names` maps old to new names, in lower case. */
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

/** Returns an agent's headers for a session's requests, under new names; `headers`: from the session's start. */
export function forwarded(
  names: Readonly<Record<string, string>>,
  headers: Headers | undefined,
): Readonly<Record<string, string>> | undefined {
  return headers && chosenOf(names, headers, isOfAll)
}

/**
 * Returns an agent's headers for a request: the request's own, and for missing headers the values from the session's
 * start. Only all these headers together identify the agent.
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
