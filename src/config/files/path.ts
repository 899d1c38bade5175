/** A place in a config: keys and list positions from the root. */
export type ConfigPath = readonly (string | number)[]

/** Writes a path as people do: `policies.overrides[2].match`. */
export function formatPath(path: ConfigPath): string {
  return path.reduce<string>((text, key) => {
    if (typeof key === 'number') return `${text}[${key}]`
    if (!/^[\w$-]+$/.test(key)) return `${text}[${JSON.stringify(key)}]`
    return text === '' ? key : `${text}.${key}`
  }, '')
}
