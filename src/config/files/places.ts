import { homedir } from 'node:os'
import { basename, dirname, isAbsolute, join, resolve, sep } from 'node:path'
import type { Env } from './interpolate.ts'
import type { Config, ServerConfig } from '../schema/schema.ts'

/**
 * Folders in which clients keep the config of a project. Relative paths in these configs start at the project's folder.
 */
const ofProject: ReadonlySet<string> = new Set([
  '.vscode',
  '.cursor',
  '.roo',
  '.gemini',
  '.zed',
  '.kiro',
  '.windsurf',
  '.amazonq',
])

/**
 * Returns the folder at which relative paths of a config file start: its own folder, or the project's folder for a file
 * in a client's folder.
 */
export function folderOf(file: string): string {
  const folder = dirname(resolve(file))
  return ofProject.has(basename(folder)) ? dirname(folder) : folder
}

/**
 * Returns the values of path variables such as `workspaceFolder`, by their names in VS Code and Cursor. The values are
 * not secret.
 */
export function placesOf(file: string, env: Env): Readonly<Record<string, string>> {
  const folder = folderOf(file)
  return {
    workspaceFolder: folder,
    workspaceFolderBasename: basename(folder),
    userHome: env.HOME ?? env.USERPROFILE ?? homedir(),
    cwd: process.cwd(),
    pathSeparator: sep,
    '/': sep,
  }
}

/** Returns a path of a config in a form that does not depend on the gateway's working directory. */
export function fromFolder(folder: string, path: string): string {
  return isAbsolute(path) ? path : join(folder, path)
}

/** Returns true if a command is a relative path, not a program found through PATH. */
export function isRelativeCommand(command: string): boolean {
  return /^\.{1,2}[\\/]/.test(command)
}

/** A point in a file; both numbers count from 1. */
export interface Position {
  readonly line: number
  readonly column: number
}

export interface Origin {
  readonly file: string
  /** Position of the key; undefined for list entries and for the root of a file. */
  readonly key: Position | undefined
  readonly value: Position
  /** True if the value is a map or a list; messages then give the position of its key. */
  readonly collection: boolean
  /** Names of the variables from which the text of the value came. */
  readonly variables: readonly string[]
}

interface Place {
  origin?: Origin
  inside?: Map<string | number, Place>
}

/** Records where every value of a config was written, over all of its files. */
export class Origins {
  /** A tree of places. A map with whole paths as keys would repeat long names for each value. */
  readonly #root: Place = {}

  set(path: ConfigPath, origin: Origin): void {
    let place = this.#root
    for (const key of path) {
      place.inside ??= new Map()
      let inner = place.inside.get(key)
      if (inner === undefined) place.inside.set(key, (inner = {}))
      place = inner
    }
    place.origin = origin
  }

  get(path: ConfigPath): Origin | undefined {
    let place: Place | undefined = this.#root
    for (const key of path) place = place?.inside?.get(key)
    return place?.origin
  }

  /** Returns the place to show for `path`: its own place, or else the place of the innermost map or list around it. */
  locate(path: ConfigPath, at: 'key' | 'value' = 'value'): { file: string } & Partial<Position> {
    for (let length = path.length; length >= 0; length--) {
      const origin = this.get(path.slice(0, length))
      if (origin === undefined) continue
      const byKey = length < path.length || at === 'key' || origin.collection
      return { file: origin.file, ...((byKey ? origin.key : undefined) ?? origin.value) }
    }
    return { file: '' }
  }
}

/** A place in a config: keys and list positions from the root. */
export type ConfigPath = readonly (string | number)[]

/** Formats a path for people: `policies.overrides[2].match`. */
export function formatPath(path: ConfigPath): string {
  return path.reduce<string>((text, key) => {
    if (typeof key === 'number') return `${text}[${key}]`
    if (!/^[\w$-]+$/.test(key)) return `${text}[${JSON.stringify(key)}]`
    return text === '' ? key : `${text}.${key}`
  }, '')
}

/** Makes the config's relative paths absolute, from its main file's folder: the working directory is irrelevant. */
export function withAbsolutePaths(config: Config, folder: string): Config {
  const from = <Key extends string>(holder: { readonly [K in Key]?: string | undefined }, key: Key) => {
    const path = holder[key]
    return path === undefined ? {} : { [key]: resolve(folder, path) }
  }
  const servers = Object.entries(config.mcpServers).map(([name, server]): [string, ServerConfig] => {
    if (server.type === 'stdio' || server.tls === undefined) return [name, server]
    const { tls } = server
    return [
      name,
      { ...server, tls: { ...tls, ...from(tls, 'ca'), ...from(tls, 'cert'), ...from(tls, 'key') } },
    ]
  })
  const { gateway, chaos, telemetry } = config
  const { controlMcp } = gateway
  return {
    ...config,
    gateway: {
      ...gateway,
      ...from(gateway, 'stateDir'),
      ...(controlMcp !== undefined && { controlMcp: { ...controlMcp, ...from(controlMcp, 'plans') } }),
    },
    mcpServers: Object.fromEntries(servers),
    chaos: {
      ...chaos,
      ...from(chaos, 'killFile'),
      journal: { ...chaos.journal, ...from(chaos.journal, 'file') },
    },
    telemetry: { ...telemetry, recording: { ...telemetry.recording, ...from(telemetry.recording, 'file') } },
  }
}
