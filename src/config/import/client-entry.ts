import { fromFolder, isRelativeCommand } from '../files/places.ts'
import { clientKeys, withTimeoutUnit } from '../schema/client-keys.ts'
import { isPlainMap } from '../schema/server-names.ts'
import { secretArgs, secretEnv, secretHeaders, secretUrl, type Variables } from './secret-values.ts'

type Json = Readonly<Record<string, unknown>>

/**
 * The surroundings of an entry: its server's name and folder, the neighbouring entries, and the targets of its
 * references.
 */
export interface EntryPlace {
  readonly server: string
  /** The folder that relative paths start from. */
  readonly folder: string
  /** Values of path variables such as `workspaceFolder`, by name; see `placesOf`. */
  readonly places: Readonly<Record<string, string>>
  readonly beside: readonly unknown[]
  readonly variables: Variables
}

/** Client names of keys, with Breakwater's names for the same keys. */
const renamed: ReadonlyMap<string, string> = new Map([
  ['httpUrl', 'url'],
  ['serverUrl', 'url'],
  ['transport', 'type'],
  ['transportType', 'type'],
])

/** Client keys that `fold` translates; `importEntry` does not copy them. */
const folded: ReadonlySet<string> = new Set(['enabled', 'includeTools', 'excludeTools', 'disabledTools'])

/**
 * Returns a client's entry with Breakwater's keys and without secrets. `ignored` has the keys that a gateway does not
 * use.
 */
export function importEntry(written: Json, place: EntryPlace): { entry: Json; ignored: readonly string[] } {
  const { server, folder, variables } = place
  const given = referring(withTimeoutUnit(written, place.beside), place) as Json
  const entry: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(given)) {
    if (Object.hasOwn(clientKeys, key) || folded.has(key)) continue
    entry[renamed.get(key) ?? key] = value
  }
  const { command, cwd, envFile, args, env, headers, url, urls } = entry
  if (typeof command === 'string' && isRelativeCommand(command)) entry.command = fromFolder(folder, command)
  if (typeof cwd === 'string') entry.cwd = fromFolder(folder, cwd)
  if (typeof envFile === 'string') entry.envFile = fromFolder(folder, envFile)
  if (isTexts(args)) entry.args = secretArgs(server, args, variables)
  if (isTextMap(env)) entry.env = secretEnv(server, env, variables)
  if (isTextMap(headers)) entry.headers = secretHeaders(server, headers, variables)
  if (typeof url === 'string') entry.url = secretUrl(server, url, variables)
  if (isTexts(urls)) entry.urls = urls.map((one) => secretUrl(server, one, variables))
  fold(given, entry)
  tidy(entry)
  return { entry, ignored: Object.keys(given).filter((key) => Object.hasOwn(clientKeys, key)) }
}

/** Moves clients' keys for disabled servers and chosen tools to the gateway's own keys. */
function fold(given: Json, entry: Record<string, unknown>): void {
  if (given.enabled === false) entry.disabled = true
  const { includeTools: include } = given
  const lists = [given.excludeTools, given.disabledTools]
  const exclude = lists.flatMap((list) => (Array.isArray(list) ? (list as unknown[]) : []))
  if (include === undefined && exclude.length === 0) return
  const own = isPlainMap(entry.tools) ? entry.tools : {}
  entry.tools = {
    ...own,
    ...(include !== undefined && { include }),
    ...(exclude.length > 0 && { exclude: [...(isTexts(own.exclude) ? own.exclude : []), ...exclude] }),
  }
}

/** Removes redundant values: a `type` that follows from `command`, `disabled: false`, empty lists and maps. */
function tidy(entry: Record<string, unknown>): void {
  if (entry.type === 'stdio' && 'command' in entry) delete entry.type
  if (entry.type === 'streamable-http' || entry.type === 'streamableHttp') entry.type = 'http'
  if (entry.disabled === false) delete entry.disabled
  for (const key of ['args', 'env', 'headers']) {
    const value = entry[key]
    const isEmpty = Array.isArray(value)
      ? value.length === 0
      : isPlainMap(value) && Object.keys(value).length === 0
    if (isEmpty) Reflect.deleteProperty(entry, key)
  }
}

/**
 * Replaces references that only clients know: path variables become paths, and prompts for a person become environment
 * variables.
 */
function referring(value: unknown, place: EntryPlace): unknown {
  if (Array.isArray(value)) return value.map((item) => referring(item, place))
  if (isPlainMap(value))
    return Object.fromEntries(Object.entries(value).map(([key, held]) => [key, referring(held, place)]))
  if (typeof value !== 'string') return value
  const { places, variables } = place
  return (
    value
      .replace(/\$\{([^${}]+)\}/g, (whole, name: string) => {
        if (Object.hasOwn(places, name)) return places[name] ?? whole
        const [, asked] = /^input:(.+)$/.exec(name) ?? []
        return asked === undefined ? whole : variables.ask(asked)
      })
      // Gemini CLI also writes variables as `$NAME`.
      .replace(
        /^((?:\w+ )?)\$([A-Z][A-Z0-9_]*)$/,
        (_, scheme: string, name: string) => scheme + variables.ask(name),
      )
  )
}

const isTexts = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((item) => typeof item === 'string')

const isTextMap = (value: unknown): value is Record<string, string> =>
  isPlainMap(value) && Object.values(value).every((held) => typeof held === 'string')
