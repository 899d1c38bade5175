import { stringify } from 'yaml'
import { ours } from '../files/client-settings.ts'
import { parseSource } from '../files/document.ts'
import type { Env } from '../files/interpolate.ts'
import { Origins, folderOf, placesOf } from '../files/places.ts'
import { readText } from '../files/read-text.ts'
import { readValues, type Reading } from '../files/read-values.ts'
import { writtenServers } from '../files/server-files.ts'
import { configHash } from '../hash.ts'
import { type ConfigIssue, formatIssue } from '../issues/issues.ts'
import { slugOf } from '../schema/server-names.ts'
import { importEntry } from './client-entry.ts'
import { isRegistryServer, registryServer } from './registry-server.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { Variables } from './secret-values.ts'

/** The result of an import: a config with notes, or the problems that prevent it. Each note or problem is one line. */
export type Imported =
  | {
      readonly ok: true
      /** The config as YAML, without secrets. */
      readonly text: string
      readonly servers: number
      readonly variables: readonly string[]
      readonly notes: readonly string[]
    }
  | { readonly ok: false; readonly problems: readonly string[] }

interface Found {
  readonly entry: Readonly<Record<string, unknown>>
  readonly file: string
  readonly written: string
}

/** The default separator between the names of servers and tools; an imported config sets no other. */
const SEPARATOR = '__'

/**
 * Settings that client configs do not have. Most people import to try Breakwater on their own machine, so the
 * environment is `development`.
 */
const HEAD = `gateway:
  # What this gateway serves: dev, development, test, staging, sandbox, qa or local. Elsewhere faults are never armed.
  environment: development
`

/** Makes a single config from client configs and registries' descriptions of servers. Never rejects. */
export async function importFiles(files: readonly string[], env: Env): Promise<Imported> {
  const servers = new Map<string, Found>()
  const notes: string[] = []
  const problems: string[] = []
  const variables = new Variables()

  function add(file: string, written: string, make: (name: string) => Found['entry'] | string): void {
    const name = slugOf(written, SEPARATOR)
    if (name === undefined)
      return void problems.push(`${file}: "${written}" needs a name with a letter or a digit of A-Z a-z 0-9`)
    const entry = make(name)
    if (typeof entry === 'string') return void problems.push(`${file}: ${written} ${entry}`)
    const twin = servers.get(name)
    if (twin === undefined) {
      servers.set(name, { entry, file, written })
      if (name !== written) notes.push(`${file}: "${written}" is called "${name}"`)
    } else if (configHash(twin.entry) !== configHash(entry)) {
      const both = `"${twin.written}" of ${twin.file} and "${written}" of ${file}`
      problems.push(`${both} would both be called "${name}", but differ; rename one of the two`)
    }
  }

  for (const file of files) {
    const read = await readVerbatim(file, env)
    if ('problems' in read) {
      problems.push(...read.problems)
      continue
    }
    if (isRegistryServer(read.value)) {
      const found = registryServer(read.value, variables)
      if (typeof found === 'string') problems.push(`${file}: ${found}`)
      else {
        add(file, found.name, () => found.entry)
        notes.push(...found.notes.map((note) => `${file}: ${found.name}: ${note}`))
      }
      continue
    }
    if (isObject(read.value) && Object.keys(read.value).some((key) => ours.has(key))) {
      problems.push(`${file}: is already a config of Breakwater, so no import is needed`)
      continue
    }
    const written = writtenServers(read.value)
    if (written.length === 0)
      problems.push(`${file}: found no servers, and no package or remote of a registry`)
    const ignored = new Set<string>()
    for (const { path, entry } of written) {
      add(file, String(path.at(-1)), (server) => {
        const beside = written.map((other) => other.entry)
        const place = { server, folder: folderOf(file), places: placesOf(file, env), beside, variables }
        const imported = importEntry(entry, place)
        for (const key of imported.ignored) ignored.add(key)
        return imported.entry
      })
    }
    if (ignored.size > 0)
      notes.push(`${file}: left out, because only clients use it: ${[...ignored].join(', ')}`)
  }
  if (problems.length > 0) return { ok: false, problems }
  const mcpServers = Object.fromEntries([...servers].map(([name, { entry }]) => [name, entry]))
  const text = `${HEAD}${stringify({ mcpServers }, { lineWidth: 0 })}`
  return { ok: true, text, servers: servers.size, variables: variablesIn(text), notes }
}

/** Returns the variables that must be set for a config's text: all variables without a default. */
function variablesIn(text: string): string[] {
  const found = text.matchAll(/(?<!\$)\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}/g)
  return [...new Set([...found].map(([, name = '']) => name))]
}

async function readVerbatim(
  file: string,
  env: Env,
): Promise<{ value: unknown } | { problems: readonly string[] }> {
  const read = await readText(file)
  if ('problem' in read) return { problems: [`${file} ${read.problem}`] }
  const source = parseSource(file, read.text)
  const issues: ConfigIssue[] = source.problems.map(({ position, message }) => {
    return { severity: 'error', file, path: '', ...position, message }
  })
  const reading: Reading = { env, origins: new Origins(), issues, interpolated: new Set(), verbatim: true }
  const value = issues.length > 0 ? undefined : readValues(file, source, source.root, [], reading)
  return issues.length > 0 ? { problems: issues.map(formatIssue) } : { value }
}
