/** Variables by name, for example `process.env`. */
export type Env = Readonly<Record<string, string | undefined>>

export interface Interpolated {
  readonly text: string
  /** The referenced variables, set or unset. */
  readonly variables: readonly string[]
  /** Mistakes in the references. The messages quote only names of variables, because the text may be secret. */
  readonly problems: readonly string[]
}

/** Longest text after interpolation, in characters: the same limit as for a whole file. */
const LONGEST = 1024 ** 2

const REFERENCE = /^(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s

/**
 * Interpolates variables in `text`: `${VAR}`, `${env:VAR}`, and `${VAR:-default}` for an unset or empty variable. A
 * default may hold further references; values are taken literally. `$${` stands for a literal `${`. `places` has
 * folders by name, such as `workspaceFolder`: they win over environment variables, and are not listed in `variables`.
 */
export function interpolate(
  text: string,
  env: Env,
  places: Readonly<Record<string, string>> = {},
): Interpolated {
  const variables: string[] = []
  const problems: string[] = []

  function fill(source: string): string {
    let filled = ''
    let from = 0
    for (let at = source.indexOf('${'); at !== -1; at = source.indexOf('${', from)) {
      if (source[at - 1] === '$' && at > from) {
        filled += `${source.slice(from, at - 1)}\${`
        from = at + 2
        continue
      }
      const end = closing(source, at + 2)
      if (end === undefined) {
        problems.push('a "${" has no "}"; write $${ for a literal ${')
        return ''
      }
      filled += source.slice(from, at) + resolve(source.slice(at + 2, end))
      from = end + 1
      if (filled.length > LONGEST) {
        problems.push('is longer than 1 MiB, all variables filled in')
        return ''
      }
    }
    return filled + source.slice(from)
  }

  function resolve(reference: string): string {
    const place = Object.hasOwn(places, reference) ? places[reference] : undefined
    if (place !== undefined) return place
    const [, name, fallback] = REFERENCE.exec(reference) ?? []
    if (name === undefined) {
      problems.push(unknownReference(reference))
      return ''
    }
    variables.push(name)
    const value = Object.hasOwn(env, name) ? env[name] : undefined
    if (fallback !== undefined) return value === undefined || value === '' ? fill(fallback) : value
    if (value === undefined)
      problems.push(`environment variable ${name} is not set; set it, or write \${${name}:-default}`)
    return value ?? ''
  }

  return { text: fill(text), variables, problems }
}

/**
 * Returns the offset of the `}` that ends a reference. `from` is the offset after its `${`; references in its default
 * are skipped.
 */
function closing(text: string, from: number): number | undefined {
  let open = 1
  for (let at = from; at < text.length; at++) {
    if (text[at] === '{' && text[at - 1] === '$') open++
    else if (text[at] === '}' && --open === 0) return at
  }
  return undefined
}

/** Returns the name of the environment variable that replaces a client's prompt `${input:id}`. */
export function variableFor(id: string): string {
  const name = id.replace(/[^A-Za-z0-9]+/g, '_').toUpperCase()
  return /^[A-Z_]/.test(name) ? name : `_${name}`
}

function unknownReference(reference: string): string {
  const forms = 'allowed are ${VAR}, ${VAR:-default} and ${env:VAR}; write $${ for a literal ${'
  if (/^input:[\w-]{1,64}$/.test(reference)) {
    const variable = variableFor(reference.slice('input:'.length))
    return `\${${reference}} asks a person, which a gateway cannot do: write \${${variable}} and set this environment variable`
  }
  return `found a "\${…}" that names no variable; ${forms}`
}
