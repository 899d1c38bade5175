import { isPlainMap } from '../schema/server-names.ts'
import type { Variables } from './secret-values.ts'

/** An entry for a server of an MCP registry, in Breakwater's format, with notes on the chosen remote or package. */
export interface RegistryServer {
  readonly name: string
  readonly entry: Readonly<Record<string, unknown>>
  /** Further remarks, for example the chosen remote or package. */
  readonly notes: readonly string[]
}

type Json = Readonly<Record<string, unknown>>

/** Reads a key by its current name, or by its name in earlier versions of the schema (`environment_variables`). */
function held(map: Json, key: string): unknown {
  return map[key] ?? map[key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)]
}

const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : undefined

const mapsOf = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isPlainMap) : [])

/** Returns true if a file is a registry's `server.json`, or an answer of a registry's API about a server. */
export function isRegistryServer(value: unknown): boolean {
  const described = descriptionIn(value)
  return described !== undefined && typeof described.name === 'string'
}

function descriptionIn(value: unknown): Json | undefined {
  if (!isPlainMap(value)) return undefined
  const described = isPlainMap(value.server) ? value.server : value
  return Array.isArray(described.packages) || Array.isArray(described.remotes) ? described : undefined
}

/**
 * Escapes `${` in all texts, so that a config does not interpolate them: texts from a registry must not read local
 * variables.
 */
function literal(value: unknown): unknown {
  if (typeof value === 'string') return value.replaceAll('${', () => '$${')
  if (Array.isArray(value)) return value.map(literal)
  if (!isPlainMap(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, held]) => [key, literal(held)]))
}

/** Programs that run a package, by the package's registry. */
const runners: Readonly<Record<string, string>> = { npm: 'npx', pypi: 'uvx', oci: 'docker' }

/**
 * Returns the entry for a server of a registry. Prefers its remote, which runs no foreign code on this machine, over
 * its first runnable package. Returns the reason as a string if there is no entry.
 */
export function registryServer(value: unknown, variables: Variables): RegistryServer | string {
  const described = literal(descriptionIn(value) ?? {}) as Json
  const name = textOf(described.name) ?? ''
  const remotes = mapsOf(described.remotes).filter((remote) => textOf(remote.url) !== undefined)
  const packages = mapsOf(described.packages)
  const isOld = (remote: Json) => typeOf(remote) === 'sse'
  const remote = remotes.find((one) => !isOld(one)) ?? remotes[0]
  const runnable = packages.filter((one) => runnerOf(one) !== undefined && isOverPipe(one))
  const alternatives = (count: number) => {
    const others = remotes.length + packages.length - count
    return others === 0 ? [] : [`it is also available in ${others} other ${others === 1 ? 'way' : 'ways'}`]
  }
  if (remote !== undefined)
    return {
      name,
      entry: remoteEntry(remote, variables, `${name.slice(name.lastIndexOf('/') + 1)}_`),
      notes: ['its remote is used', ...alternatives(1)],
    }
  const [first] = runnable
  if (first !== undefined) {
    const notes = [`its package of ${String(held(first, 'registryType'))} is used`, ...alternatives(1)]
    return { name, entry: packageEntry(first, variables), notes }
  }
  const kinds = packages.map((one) => textOf(held(one, 'registryType')) ?? 'unknown').join(', ')
  return `has no remote, and no npm, pypi or oci package with stdio transport (found: ${kinds || 'none'})`
}

const typeOf = (remote: Json) => textOf(remote.type) ?? textOf(held(remote, 'transportType'))

const runnerOf = (one: Json) => {
  const kind = textOf(held(one, 'registryType')) ?? ''
  return Object.hasOwn(runners, kind) ? runners[kind] : undefined
}

const isOverPipe = ({ transport }: Json) => !isPlainMap(transport) || transport.type === 'stdio'

/**
 * Returns the entry for a remote. Its variables' names begin with `prefix`, because headers of many servers have the
 * same names.
 */
function remoteEntry(remote: Json, variables: Variables, prefix: string): Json {
  const headers = named(mapsOf(remote.headers), variables, prefix)
  const url = filled(textOf(remote.url) ?? '', remote, variables, prefix)
  return {
    ...(typeOf(remote) === 'sse' ? { type: 'sse' } : { type: 'http' }),
    url,
    ...(Object.keys(headers).length > 0 && { headers }),
  }
}

function packageEntry(one: Json, variables: Variables): Json {
  const kind = textOf(held(one, 'registryType')) ?? ''
  const env = named(mapsOf(held(one, 'environmentVariables')), variables)
  const runtime = argumentsOf(held(one, 'runtimeArguments'), variables)
  const own = argumentsOf(held(one, 'packageArguments'), variables)
  const command = textOf(held(one, 'runtimeHint')) ?? runners[kind]
  const args = {
    npm: [...(runtime.includes('-y') ? [] : ['-y']), ...runtime, versioned(one, '@'), ...own],
    pypi: [...runtime, versioned(one, '@'), ...own],
    oci: [
      ...['run', '-i', '--rm', ...runtime],
      ...Object.keys(env).flatMap((variable) => ['-e', variable]),
      ...[versioned(one, ':'), ...own],
    ],
  }[kind]
  return { command, args, ...(Object.keys(env).length > 0 && { env }) }
}

/** Adds the version to a package, unless its name already has a version. */
function versioned(one: Json, mark: '@' | ':'): string {
  const identifier = textOf(one.identifier) ?? textOf(one.name) ?? ''
  const version = textOf(one.version)
  // The `@` of a package's scope and the `:` before a registry's port do not begin a version.
  const tail = identifier.slice(identifier.lastIndexOf('/') + 1)
  return version === undefined || /[@:]/.test(tail.replace(/^@/, ''))
    ? identifier
    : `${identifier}${mark}${version}`
}

function argumentsOf(given: unknown, variables: Variables): string[] {
  return mapsOf(given).flatMap((argument) => {
    const name = textOf(argument.name)
    const value = valueOf(argument, name ?? textOf(held(argument, 'valueHint')) ?? 'ARGUMENT', variables)
    if (argument.type === 'named' && name !== undefined)
      return value === undefined ? optional(argument, name) : [name, value]
    return value === undefined ? [] : [value]
  })
}

/** Returns the name of an argument without a value; an empty list if the argument should have a value. */
function optional(argument: Json, name: string): string[] {
  return textOf(held(argument, 'valueHint')) === undefined && argument.format === undefined ? [name] : []
}

/** Returns the headers or environment variables that have a value or need a value. */
function named(inputs: readonly Json[], variables: Variables, prefix = ''): Record<string, string> {
  return Object.fromEntries(
    inputs.flatMap((input) => {
      const name = textOf(input.name)
      const value = name === undefined ? undefined : valueOf(input, name, variables, prefix)
      return name === undefined || value === undefined ? [] : [[name, value]]
    }),
  )
}

/** Returns the value of an input, or a reference to a variable; undefined for an optional input without a value. */
function valueOf(input: Json, name: string, variables: Variables, prefix = ''): string | undefined {
  const value = textOf(input.value)
  if (value !== undefined) return filled(value, input, variables, prefix)
  const isSecret = held(input, 'isSecret') === true
  const preset = textOf(input.default)
  if (preset !== undefined && !isSecret) return preset
  return held(input, 'isRequired') === true || isSecret ? variables.ask(prefix + name) : undefined
}

/** Replaces each `{name}` in a text by its value from the registry's description, or by a variable. */
function filled(text: string, { variables: known }: Json, variables: Variables, prefix = ''): string {
  return text.replace(/\{([\w-]+)\}/g, (whole, name: string) => {
    const input = isPlainMap(known) && Object.hasOwn(known, name) ? known[name] : undefined
    if (!isPlainMap(input)) return whole
    return valueOf(input, name, variables, prefix) ?? variables.ask(prefix + name)
  })
}
