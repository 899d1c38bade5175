import { dirname, isAbsolute, join, resolve } from 'node:path'
import { isPlainMap } from '../schema/server-names.ts'
import { parseEnvFile } from './env-file.ts'
import { type ConfigPath, formatPath, folderOf, fromFolder, isRelativeCommand } from './places.ts'
import { readFile, type Reading } from './read-values.ts'

/** Paths of all blocks in which a config may have its servers. */
export const serverBlocks: readonly ConfigPath[] = [
  ['mcpServers'],
  ['servers'],
  ['context_servers'],
  ['mcp', 'servers'],
]

/** A server of a config, as written. */
export interface WrittenServer {
  readonly path: ConfigPath
  readonly entry: Record<string, unknown>
  readonly block: Record<string, unknown>
}

/** Returns all servers of a config, under any name of their block. */
export function writtenServers(config: unknown): WrittenServer[] {
  return serverBlocks.flatMap((names) => {
    const block = names.reduce<unknown>(
      (inside, key) => (isPlainMap(inside) ? inside[key] : undefined),
      config,
    )
    if (!isPlainMap(block)) return []
    return Object.entries(block).flatMap(([name, entry]) =>
      isPlainMap(entry) ? [{ path: [...names, name], entry, block }] : [],
    )
  })
}

/**
 * Adds the contents of `envFile` to `env`, and makes servers' paths independent of the gateway's working directory.
 * Adds problems and the secret values to `reading`, and the path of each `envFile` to `files`, even if it cannot be
 * read.
 */
export async function takeFiles(config: unknown, reading: Reading, files: string[]): Promise<void> {
  for (const { path, entry } of writtenServers(config)) {
    const folder = folderOf(reading.origins.locate(path).file)
    const { command, cwd, envFile } = entry
    if (typeof command === 'string' && isRelativeCommand(command)) entry.command = fromFolder(folder, command)
    if (typeof cwd === 'string' && cwd !== '') entry.cwd = fromFolder(folder, cwd)
    if (typeof envFile !== 'string' || envFile === '') continue
    Reflect.deleteProperty(entry, 'envFile')
    if (entry.disabled === true || entry.enabled === false) continue
    const variables = await readEnvFile({ folder, named: envFile, path }, reading, files)
    if (entry.env === undefined || isPlainMap(entry.env)) entry.env = { ...variables, ...entry.env }
  }
}

/** An `envFile`, and the server that names the file. */
interface Named {
  readonly folder: string
  readonly named: string
  readonly path: ConfigPath
}

async function readEnvFile(
  { folder, named, path }: Named,
  reading: Reading,
  files: string[],
): Promise<Record<string, string>> {
  const { origins, issues, interpolated } = reading
  const at = [...path, 'envFile']
  const place = origins.locate(at)
  // The path starts like the config's path, so messages show both files relative to the same folder.
  const beside = dirname(place.file)
  const isBeside = !isAbsolute(named) && folder === resolve(beside)
  const file = isBeside ? join(beside, named) : fromFolder(folder, named)
  files.push(file)
  const read = await readFile(file, reading)
  if ('problem' in read) {
    issues.push({ severity: 'error', ...place, path: formatPath(at), message: `${file} ${read.problem}` })
    return {}
  }
  const { variables, problems } = parseEnvFile(read.text)
  for (const { line, message } of problems)
    issues.push({ severity: 'error', file, line, column: 1, path: formatPath(at), message })
  for (const text of variables.values()) if (text !== '') interpolated.add(text)
  return Object.fromEntries(variables)
}
