import type { Caller } from '../mesh/call.ts'

/** The headers of an agent that a server gets, under their new names; `names` maps the old ones to them, lower case. */
export function forwarded(
  names: Readonly<Record<string, string>>,
  headers: Readonly<Record<string, string | string[] | undefined>> | undefined,
): Readonly<Record<string, string>> | undefined {
  if (headers === undefined) return undefined
  let chosen: Record<string, string> | undefined
  for (const name in names) {
    const value = headers[name]
    if (typeof value === 'string') (chosen ??= {})[names[name] as string] = value
  }
  return chosen
}

/**
 * The headers of an agent that a server gets with a request: those that came with it, and of the others those that its
 * session began with. Who is told apart by them is told apart by all of them.
 */
export function forwardedWith(
  names: Readonly<Record<string, string>>,
  headers: Readonly<Record<string, string | string[] | undefined>>,
  { headers: first }: Pick<Caller, 'headers'>,
): Readonly<Record<string, string>> | undefined {
  const own = forwarded(names, headers)
  const begun = forwarded(names, first)
  return begun === undefined || own === undefined ? (own ?? begun) : { ...begun, ...own }
}
