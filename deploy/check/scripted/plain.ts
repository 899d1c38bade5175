/** A rule's name in an expression. */
const recorded = /\b\w+:breakwater_\w+(?::\w+)?/g

const rate = /rate\(([^()]+)\[\w+\]\)/g

/**
 * An expression over recording rules (`rules`: the expression of each, by name) without any rate: rules are put in as
 * what they are, and in place of each rate is by how much its counters have grown since a time, in seconds since the
 * Unix epoch. Where all of it is ratios, that is what rates are an estimate of.
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
