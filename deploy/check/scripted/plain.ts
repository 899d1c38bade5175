const recorded = /\b\w+:breakwater_\w+(?::\w+)?/g

const rate = /rate\(([^()]+)\[\w+\]\)/g

/**
 * Rewrites an expression over recording rules without rates (`rules`: the expression of each, by name). Rule names
 * become their expressions, and each rate becomes the growth of its counters since a time, in seconds since the Unix
 * epoch. For ratios, rates estimate exactly this value.
 */
export function plainOf(expr: string, rules: ReadonlyMap<string, string>, since: number): string {
  let plain = expr
  while (plain.search(recorded) >= 0)
    plain = plain.replace(recorded, (name) => {
      const rule = rules.get(name)
      if (rule === undefined) throw new Error(`there is no rule ${name}`)
      return `(${rule})`
    })
  return plain.replace(rate, (_, counter: string) => `(${counter} - ${counter} @ ${since})`)
}
