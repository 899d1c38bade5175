import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { whyUnreadable } from '../config/files/read-text.ts'
import { parseJson } from '../protocol/jsonrpc.ts'
import { serverName } from '../config/schema/schema.ts'
import { server as serverSchema, type ServerConfig } from '../config/schema/server-schema.ts'
import { makeFolder } from '../units/folder.ts'

/** The result of a change through the API: HTTP status and details. */
export interface Change {
  readonly status: number
  readonly [detail: string]: unknown
}

export interface DynamicServersParts {
  /** `gateway.stateDir`; undefined: added servers end with the process. */
  readonly stateDir: string | undefined
  /** All entries in force, including entries of the config file, which the API may not change. */
  readonly inForce: () => Readonly<Record<string, ServerConfig>>
  readonly separator: string
  /** Whether a server may have a `command`, a program run on this machine. */
  readonly allowCommands: boolean
  /** Puts the servers into force. Throws, without changes, on failure. */
  readonly apply: () => void
}

const MAX_SERVERS = 1_000

/** A server's entry as given, and parsed. */
interface Given {
  readonly input: unknown
  readonly config: ServerConfig
}

/** The body of a request to add a server: a name, and an entry of `mcpServers`. */
export const addedServer = z.strictObject({ name: serverName, server: serverSchema })

/** The servers added through the admin API, kept in `{stateDir}/servers.json` as given. */
export class DynamicServers {
  readonly #parts: DynamicServersParts
  readonly #given = new Map<string, Given>()
  #saving: Promise<void> = Promise.resolve()

  constructor(parts: DynamicServersParts) {
    this.#parts = parts
  }

  /** Reads the servers kept by an earlier process. Rejects when the file exists but cannot be used. */
  async load(): Promise<void> {
    const file = this.#file
    if (file === undefined) return
    const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return '{"mcpServers":{}}'
      throw new Error(`${file} cannot be read: ${whyUnreadable(error)}`)
    })
    // Quotes no message of the schema, which may contain a secret.
    const kept = keptServers.safeParse(parseJson(text))
    if (!kept.success) {
      const where = kept.error.issues[0]?.path.join('.') ?? ''
      throw new Error(
        `${file} cannot be used${where === '' ? '' : ` (${where})`}: fix the file, or delete the file and all servers added through the API`,
      )
    }
    for (const [name, input] of Object.entries(kept.data.mcpServers))
      this.#given.set(name, { input, config: serverSchema.parse(input) })
  }

  has(name: string): boolean {
    return this.#given.has(name)
  }

  /** The allowed entries, to merge with the config file's entries, which win. */
  get entries(): Readonly<Record<string, ServerConfig>> {
    return Object.fromEntries(
      [...this.#given].flatMap(([name, { config }]) => (this.#isAllowed(config) ? [[name, config]] : [])),
    )
  }

  /** Names of kept servers that this process may not run. The servers stay in the file. */
  get withheld(): readonly string[] {
    return [...this.#given].flatMap(([name, { config }]) => (this.#isAllowed(config) ? [] : [name]))
  }

  /** Adds or replaces a server. `input`: an entry of `mcpServers`. Rejects when the entry's schema refuses `input`. */
  async add(name: string, input: unknown): Promise<Change> {
    const config = serverSchema.parse(input)
    const { separator } = this.#parts
    if ((name + separator).indexOf(separator) !== name.length) {
      return {
        status: 400,
        error: `the name of a server must not contain the separator "${separator}", or end with the separator's beginning`,
      }
    }
    if (!this.#isAllowed(config)) {
      const error =
        'forbidden: a server with a "command" would run a program on the machine of the gateway; the config must allow this (gateway.dynamicCommands: true, and a restart)'
      return { status: 403, error }
    }
    if (this.#isConfigured(name))
      return { status: 409, error: `"${name}" is in the config file; change it there` }
    if (this.#given.size >= MAX_SERVERS && !this.has(name))
      return { status: 429, error: `too many servers (${MAX_SERVERS})` }
    const before = this.#given.get(name)
    this.#given.set(name, { input, config })
    return this.#changed(before === undefined ? 201 : 200, { name }, before)
  }

  async remove(name: string): Promise<Change> {
    if (this.#isConfigured(name))
      return { status: 409, error: `"${name}" is in the config file; remove it there` }
    const before = this.#given.get(name)
    if (before === undefined)
      return { status: 404, error: `no server "${name.slice(0, 64)}" was added through this API` }
    this.#given.delete(name)
    return this.#changed(200, { name, removed: true }, before)
  }

  /** Whether the name belongs to the config file. */
  #isConfigured(name: string): boolean {
    const inForce = this.#parts.inForce()
    return Object.hasOwn(inForce, name) && inForce[name] !== this.#given.get(name)?.config
  }

  #isAllowed({ type }: ServerConfig): boolean {
    return type !== 'stdio' || this.#parts.allowCommands
  }

  get #file(): string | undefined {
    return this.#parts.stateDir === undefined ? undefined : join(this.#parts.stateDir, 'servers.json')
  }

  async #changed(
    status: number,
    answer: { name: string; removed?: true },
    before: Given | undefined,
  ): Promise<Change> {
    try {
      this.#parts.apply()
    } catch (error) {
      if (before === undefined) this.#given.delete(answer.name)
      else this.#given.set(answer.name, before)
      return { status: 422, error: `cannot be put into force: ${(error as Error).message}` }
    }
    if (this.#file === undefined)
      return {
        status,
        ...answer,
        kept: false,
        note: 'the change ends with the process: gateway.stateDir is not set',
      }
    try {
      await this.#save(this.#file)
    } catch (error) {
      // The server is in force anyway. The next change writes this change as well.
      const note = `in force, but not written to ${this.#file}: ${whyUnreadable(error)}`
      return { status, ...answer, kept: false, note }
    }
    return { status, ...answer, kept: true }
  }

  /** Writes one after the other, so the last change is written last. */
  #save(file: string): Promise<void> {
    return (this.#saving = this.#saving.then(
      () => this.#write(file),
      () => this.#write(file),
    ))
  }

  /** Headers and environments may hold secrets, so only the owner may read the file. */
  async #write(file: string): Promise<void> {
    const mcpServers = Object.fromEntries([...this.#given].map(([name, { input }]) => [name, input]))
    makeFolder(this.#parts.stateDir as string, 0o700)
    await writeFile(`${file}.new`, JSON.stringify({ mcpServers }, undefined, 2), { mode: 0o600 })
    await rename(`${file}.new`, file)
  }
}

const keptServers = z.object({
  mcpServers: z.record(
    serverName,
    z.unknown().refine((input) => serverSchema.safeParse(input).success),
  ),
})
