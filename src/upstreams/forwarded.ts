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
