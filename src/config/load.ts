import { readFile as readWhole, stat } from 'node:fs/promises'
import { dirname, isAbsolute, join, resolve } from 'node:path'
import {
  aliasesIn,
  ForeignPlanError,
  fromChaosMonkey,
  fromMcpChaos,
  planFormat,
} from '../chaos/plan/compat/index.ts'
import { withAbsolutePaths, Origins, type ConfigPath, formatPath } from './files/places.ts'
import { clientSettings, ownBlock } from './files/client-settings.ts'
import { digestOf, type TextFile, whyUnreadable } from './files/read-text.ts'
import { parseSource, type SourceDocument } from './files/document.ts'
import type { Env } from './files/interpolate.ts'
import { type Bounds, readFile, type Reading, readValues } from './files/read-values.ts'
import { serverBlocks, takeFiles, writtenServers } from './files/server-files.ts'
import { configHash } from './hash.ts'
import { clientFindings } from './issues/client-findings.ts'
import { explain } from './issues/explain.ts'
import { type ConfigFinding, type ConfigIssue, sortIssues } from './issues/issues.ts'
import type { KnownTools } from './issues/idle.ts'
import { oldKeys } from './issues/old-keys.ts'
import { brokenRules, warningsOf } from './issues/rules.ts'
import { coerce } from './schema/schema-walk.ts'
import { isPlainMap, slugOf } from './schema/server-names.ts'
import { type Config, config as schema } from './schema/schema.ts'
import { rememberInterpolated } from './secrets/redact.ts'
import { withoutInterpolated } from './secrets/redact-text.ts'

/** The `digestOf` each file that was read, by absolute path. */
export type FilesRead = ReadonlyMap<string, string>

/** A usable config, or all errors that make the config unusable. */
export type Loaded =
  | {
      readonly ok: true
      readonly config: Config
      readonly warnings: readonly ConfigIssue[]
      /** The files of the config; the watcher watches them. */
      readonly files: FilesRead
      /** Hash of the effective config; see `configHash`. */
      readonly hash: string
    }
  | {
      readonly ok: false
      readonly errors: readonly ConfigIssue[]
      /** All files of the config, also unreadable files; the watcher watches them. */
      readonly files: FilesRead
    }

/**
 * Reads the config at `path`, with its variables from `env`. Never rejects: mistakes are returned as errors. `tools`:
 * the known tools of servers; tools of other servers are not checked.
 */
export async function loadConfig(path: string, env: Env, tools?: KnownTools): Promise<Loaded> {
  return remembered(await readConfig(path, env, {}, tools))
}

/** A config as read, in this thread or another. */
export interface ReadConfig {
  readonly loaded: Loaded
  readonly interpolated: ReadonlySet<string>
}

/**
 * Reads a config in any thread. The thread that uses the config calls `remembered` on the result. Rejects with
 * `TooMuch` beyond the allowance.
 */
export async function readConfig(
  path: string,
  env: Env,
  bounds: Bounds = {},
  tools?: KnownTools,
): Promise<ReadConfig> {
  const sources = await readSources(path, env, bounds)
  const read = await withFitFiles(loaded(path, sources, tools), sources)
  return { loaded: read, interpolated: sources.interpolated }
}

/** Adds errors about unsuitable TLS files, and warnings about TLS files that cannot be read now. */
async function withFitFiles(read: Loaded, sources: Sources): Promise<Loaded> {
  if (!read.ok) return read
  const { mcpServers } = read.config
  const found = await unfitFiles(mcpServers)
  const told = (severity: ConfigIssue['severity']) =>
    found[severity].map((finding) => report(severity, finding, sources.origins, mcpServers))
  if (found.error.length > 0) return { ok: false, errors: shown(told('error'), sources), files: read.files }
  if (found.warning.length === 0) return read
  return {
    ...read,
    warnings: sortIssues([...read.warnings, ...shown(told('warning'), sources)], sources.files),
  }
}

/** Largest TLS file, in bytes: a system's trusted certificates take a fifth of this. */
const MAX_PEM = 1024 * 1024

/**
 * Text that a PEM file of each kind must contain. Node would take a file without it for an empty list of certificates.
 */
const PEM = { ca: 'CERTIFICATE-----', cert: 'CERTIFICATE-----', key: 'PRIVATE KEY-----' } as const

/**
 * Resolves to the reason why a file is unsuitable as `key`; undefined when it is suitable. Rejects when the file cannot
 * be read.
 */
async function unfit(file: string, key: keyof typeof PEM): Promise<string | undefined> {
  const found = await stat(file)
  // Refuses pipes and devices, because reading one could block the process.
  if (!found.isFile()) return `${file} is no regular file`
  if (found.size > MAX_PEM) return `${file} has ${found.size} bytes (at most ${MAX_PEM})`
  if ((await readWhole(file, 'latin1')).includes(PEM[key])) return undefined
  return `${file} holds no ${key === 'key' ? 'private key' : 'certificate'} in PEM`
}

/**
 * Resolves to errors about unsuitable TLS files, and warnings about files that cannot be read now but may exist before
 * use.
 */
async function unfitFiles(
  mcpServers: Config['mcpServers'],
): Promise<Readonly<Record<ConfigIssue['severity'], ConfigFinding[]>>> {
  const findings = { error: [] as ConfigFinding[], warning: [] as ConfigFinding[] }
  for (const [name, server] of Object.entries(mcpServers)) {
    if (server.type === 'stdio' || server.tls === undefined || server.disabled) continue
    for (const key of ['ca', 'cert', 'key'] as const) {
      const file = server.tls[key]
      if (file === undefined) continue
      const where = { path: ['mcpServers', name, 'tls', key], at: 'value' } as const
      try {
        const message = await unfit(file, key)
        if (message !== undefined) findings.error.push({ ...where, message })
      } catch (error) {
        findings.warning.push({
          ...where,
          message: `the file cannot be read now: ${whyUnreadable(error)}; the gateway does not start without the file`,
        })
      }
    }
  }
  return findings
}

/** Marks the texts that came from variables as secrets of the config. Returns the loaded config. */
export function remembered({ loaded, interpolated }: ReadConfig): Loaded {
  if (loaded.ok && interpolated.size > 0) rememberInterpolated(loaded.config, interpolated)
  return loaded
}

/** Reads a file with only the block `policies`, bare or under its name; everything else has its defaults. */
export async function loadPolicies(path: string, env: Env): Promise<Loaded> {
  const sources = await readSources(path, env, {}, 'policies')
  return remembered({ loaded: loaded(path, sources), interpolated: sources.interpolated })
}

/** Returns issues for display: in the order of the files, and without secrets. */
function shown(
  found: readonly ConfigIssue[],
  { files, interpolated }: Pick<Sources, 'files' | 'interpolated'>,
): ConfigIssue[] {
  return sortIssues(found, files).map((issue) => ({
    ...issue,
    message: withoutInterpolated(issue.message, interpolated),
  }))
}

function loaded(path: string, sources: Sources, tools?: KnownTools): Loaded {
  const { value, files, texts, origins, issues, leftOut } = sources
  const watched = new Map(files.map((file) => [resolve(file), digestOf(texts.get(file)!)]))
  const failed = (errors: readonly ConfigIssue[]): Loaded => ({
    ok: false,
    errors: shown(errors, sources),
    files: watched,
  })
  if (value === undefined) return failed(issues)

  const { value: withoutSettings, settings } = withoutClientSettings(value)
  const { value: own, problem } = withOwnPlan(withoutSettings)
  if (problem !== undefined) return failed([report('error', { ...problem, at: 'value' }, origins, {})])
  const old = oldKeys(isPlainMap(own) ? own.gateway : undefined)
  if (old.length > 0)
    return failed([...issues, ...old.map((finding) => report('error', finding, origins, {}))])
  const typed = coerce(own, schema, origins)
  // The empty text makes zod keep the error texts of the schemas; `explain` writes all other texts.
  const parsed = schema.safeParse(typed, { error: () => '' })
  if (!parsed.success) {
    const problems = explain(parsed.error.issues, { schema, value: typed, origins })
    // A value that could not be read already has an issue, so further issues within it are dropped.
    return failed([
      ...issues,
      ...problems.filter(({ path }) => !issues.some((issue) => within(path, issue.path))),
    ])
  }
  if (issues.length > 0) return failed(issues)

  const config = withAbsolutePaths(parsed.data, dirname(resolve(path)))
  const broken = brokenRules(config)
  if (broken.length > 0)
    return failed(broken.map((finding) => report('error', finding, origins, config.mcpServers)))
  const warnings = [
    ...leftOut.map((at) =>
      report('warning', { path: at, at: 'key', message: 'is disabled, and left out' }, origins, {}),
    ),
    ...clientFindings(typed, settings).map((finding) => report('warning', finding, origins, {})),
    ...warningsOf(config, { tools, variables: sources.env }).map((finding) =>
      report('warning', finding, origins, config.mcpServers),
    ),
  ]
  return { ok: true, config, warnings: shown(warnings, sources), files: watched, hash: configHash(config) }
}

const within = (path: string, outer: string) =>
  path === outer || path.startsWith(`${outer}.`) || path.startsWith(`${outer}[`)

function report(
  severity: ConfigIssue['severity'],
  { path, at, message }: ConfigFinding,
  origins: Origins,
  servers: Config['mcpServers'],
): ConfigIssue {
  const written = asWritten(path, origins, servers)
  return { severity, path: formatPath(written), message, ...origins.locate(written, at) }
}

/** Returns a path with the names of the file, which may use other names for the block of servers and for a server. */
function asWritten(path: ConfigPath, origins: Origins, servers: Config['mcpServers']): ConfigPath {
  const [block, name, ...rest] = path
  if (block !== 'mcpServers') return path
  const written = serverBlocks.find((names) => origins.get(names) !== undefined) ?? [block]
  if (name === undefined) return written
  return [...written, servers[name]?.writtenName ?? name, ...rest]
}

const ownKeys = Object.keys(schema.in.shape)

/** Returns a config without its client's settings, and the settings' names. */
function withoutClientSettings(value: unknown): { value: unknown; settings: readonly string[] } {
  if (!isPlainMap(value)) return { value, settings: [] }
  const settings = clientSettings(Object.keys(value), ownKeys)
  const kept = Object.entries(value).filter(([key]) => !settings.includes(key))
  return { value: Object.fromEntries(kept), settings }
}

/** A config as written, with its files combined. */
interface Sources extends Reading {
  /** Undefined when the main file cannot be read or parsed. */
  readonly value: unknown
  /** Paths of the files in the order of reading, as shown in issues. */
  readonly files: readonly string[]
  /** The text of each file, or why the file cannot be read, by path. */
  readonly texts: Map<string, TextFile>
  /** Paths of servers removed from `value`: they are disabled, and their entries cannot be read. */
  readonly leftOut: readonly ConfigPath[]
}

/**
 * Reads `main` and the files that stand for whole blocks (`policies: { file: policies.yaml }`); with `only`, `main` is
 * itself the file of a block.
 */
async function readSources(main: string, env: Env, bounds: Bounds, only?: string): Promise<Sources> {
  const files: string[] = []
  const texts = bounds.texts ?? new Map<string, TextFile>()
  const reading: Reading = {
    ...bounds,
    texts,
    env,
    origins: new Origins(),
    issues: [],
    interpolated: new Set(),
  }

  function fail(
    place: Pick<ConfigIssue, 'file' | 'line' | 'column'>,
    path: ConfigPath,
    message: string,
  ): undefined {
    reading.issues.push({ severity: 'error', ...place, path: formatPath(path), message })
  }

  async function open(
    file: string,
    unreadable: (problem: string) => undefined,
  ): Promise<SourceDocument | undefined> {
    files.push(file)
    const read = await readFile(file, reading)
    if ('problem' in read) return unreadable(read.problem)
    const source = parseSource(file, read.text)
    for (const { position, message } of source.problems) fail({ file, ...position }, [], message)
    if (source.problems.length > 0) return undefined
    // An empty file is an error, because an editor has most likely not written its content yet.
    if (source.root === null) return fail({ file, line: 1, column: 1 }, [], 'the file is empty')
    return source
  }

  function include(block: string, named: string): Promise<unknown> {
    const file = isAbsolute(named) ? named : join(dirname(main), named)
    const place = reading.origins.locate([block, 'file'])
    return readBlock(block, file, (problem) => fail(place, [block, 'file'], `${file} ${problem}`))
  }

  async function readBlock(
    block: string,
    file: string,
    unreadable: (problem: string) => undefined,
  ): Promise<unknown> {
    const source = await open(file, unreadable)
    if (source === undefined) return undefined
    const { node, unknownKeys } = ownBlock(block, source)
    for (const { name, node: key } of unknownKeys) {
      fail({ file, ...source.positionOf(key) }, [name], `only "${block}" is read from this file`)
    }
    return readValues(file, source, node, [block], reading)
  }

  const unreadable = (problem: string) => fail({ file: main }, [], problem)
  if (only !== undefined) {
    const block = await readBlock(only, main, unreadable)
    const value = block === undefined ? undefined : { [only]: block }
    return { ...reading, texts, value, files, leftOut: [] }
  }
  const source = await open(main, unreadable)
  const value = source && readValues(main, source, source.root, [], reading)
  for (const [block, held] of Object.entries(isPlainMap(value) ? value : {})) {
    if (!isPlainMap(value) || !isPlainMap(held) || typeof held.file !== 'string') continue
    const beside = Object.keys(held).find((key) => key !== 'file')
    if (beside !== undefined) {
      const path = [block, beside]
      fail(reading.origins.locate(path, 'key'), path, 'a block with "file" has no other keys')
    } else if (held.file === '' && !reading.issues.some(({ path }) => path === `${block}.file`)) {
      fail(reading.origins.locate([block, 'file']), [block, 'file'], 'expected the path of a file, found ""')
    }
    // A block that cannot be read counts as absent, so the other blocks are still checked.
    value[block] = held.file === '' || beside !== undefined ? undefined : await include(block, held.file)
  }
  await takeFiles(value, reading, files)
  return { ...reading, texts, value, files, leftOut: leaveOut(value, reading.issues) }
}

/** Removes disabled servers with unreadable entries, for example an unset variable. Returns the removed paths. */
function leaveOut(value: unknown, issues: ConfigIssue[]): ConfigPath[] {
  return writtenServers(value).flatMap(({ path, entry, block }) => {
    if (entry.disabled !== true && entry.enabled !== false) return []
    const others = issues.filter((issue) => !within(issue.path, formatPath(path)))
    if (others.length === issues.length) return []
    issues.splice(0, issues.length, ...others)
    Reflect.deleteProperty(block, String(path.at(-1)))
    return [path]
  })
}

/** Lifetime of faults from plans in other formats, which have no times, in milliseconds. */
const TTL_MS = 3_600_000

export interface Translated {
  readonly value: unknown
  readonly problem?: { readonly path: ConfigPath; readonly message: string }
}

/** Translates a plan in the format of another tool, in the block `chaos`, into Breakwater's format. */
function withOwnPlan(value: unknown): Translated {
  const chaos = isPlainMap(value) ? value.chaos : undefined
  if (!isPlainMap(value) || !isPlainMap(chaos)) return { value }
  const format = planFormat(chaos)
  if (format === 'own') return { value }
  const { faults: _, seed, ...rest } = chaos
  const servers = serversIn(value)
  const options = {
    ttl: typeof chaos.maxTtl === 'number' ? chaos.maxTtl : TTL_MS,
    allowWrites: true,
    aliases: aliasesIn(chaos.aliases),
    ...(servers && { servers }),
  }
  try {
    const plan =
      format === 'mcp-chaos'
        ? fromMcpChaos({ seed, faults: chaos.faults }, options)
        : {
            ...(seed === undefined ? {} : { seed }),
            faults: fromChaosMonkey({ faults: chaos.faults }, options),
          }
    return { value: { ...value, chaos: { ...rest, ...plan } } }
  } catch (error) {
    if (!(error instanceof ForeignPlanError)) throw error
    return { value, problem: { path: ['chaos', ...error.path], message: error.problem } }
  }
}

/** The gateway's names of a config's servers; undefined without servers. */
function serversIn(value: Readonly<Record<string, unknown>>): readonly string[] | undefined {
  const servers = writtenServers(value)
  const separator = isPlainMap(value.gateway) ? value.gateway.separator : undefined
  const names = servers.map(({ path }) => {
    const written = String(path.at(-1))
    return slugOf(written, typeof separator === 'string' ? separator : '__') ?? written
  })
  return names.length === 0 ? undefined : names
}
