import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { lstat, mkdir, open, rename, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import type { Env } from '../config/files/interpolate.ts'
import { isLoopback } from '../units/address.ts'
import { makeFolder } from '../units/folder.ts'

/**
 * The control token of a gateway whose config has no token. The gateway makes a token at its start, and writes the
 * token to a file that only its own user can read. Commands of the same user find the file by the address of the
 * control plane.
 */

const TOKEN_BYTES = 32

/** Marks the token for people and secret scanners. A bare token may begin with `-` and look like an option. */
const PREFIX = 'bw_'

/** Content of a token file: the prefix, then `TOKEN_BYTES` bytes in base64url. */
const TOKEN = /^bw_[\w-]{43}\n?$/

export const newControlToken = (): string => `${PREFIX}${randomBytes(TOKEN_BYTES).toString('base64url')}`

export interface KeepOptions {
  readonly token: string
  /** Base URL of the listening control plane. */
  readonly control: string
  /** `gateway.stateDir`. */
  readonly stateDir: string | undefined
  readonly env: Env
}

export interface KeptToken {
  readonly files: readonly string[]
  /** One sentence for each folder without the token, with the reason. */
  readonly problems: readonly string[]
  /**
   * Removes the files. Call this before the control plane closes: later another gateway may have the address and its
   * own files. Never rejects.
   */
  remove(): Promise<void>
}

/** Writes the token into the state folder, if set, and into the first trusted run folder. Never rejects. */
export async function keepToken({ token, control, stateDir, env }: KeepOptions): Promise<KeptToken> {
  const { hostname, port } = new URL(control)
  const name = nameOf(hostname, port)
  const files: string[] = []
  const problems: string[] = []
  /** Writes the token into a folder. Resolves to true when the token is in the folder. */
  const put = async (folder: string, prepare: (folder: string) => Promise<string | undefined>) => {
    try {
      const problem = await prepare(folder)
      if (problem === undefined) files.push(await write(folder, name, token))
      else problems.push(problem)
      return problem === undefined
    } catch (error) {
      problems.push(`${folder} cannot be written to: ${(error as Error).message}`)
      return false
    }
  }
  if (stateDir !== undefined) await put(stateDir, prepareStateFolder)
  for (const folder of runFolders(env)) if (await put(folder, prepareRunFolder)) break
  return {
    files,
    problems,
    remove: async () => void (await Promise.allSettled(files.map((file) => rm(file, { force: true })))),
  }
}

export type FoundToken =
  | {
      readonly ok: true
      readonly token: string
      readonly file: string
      /** The requested URL, with the token's address in place of a host name. */
      readonly base: string
    }
  | { readonly ok: false; readonly why: string }

/** Finds the token of this user's gateway on this machine with its control plane at `base`. Never rejects. */
export async function findToken(base: string, env: Env): Promise<FoundToken> {
  const url = new URL(base)
  const named = bare(url.hostname)
  if (!isLoopback(named)) return { ok: false, why: 'token files exist for loopback addresses only' }
  const port = url.port || (url.protocol === 'https:' ? '443' : '80')
  const folders = runFolders(env)
  const problems: string[] = []
  // Tries both addresses of `localhost`: different gateways may listen there, and a token may be sent only to its own
  // address.
  for (const host of named === 'localhost' ? ['127.0.0.1', '::1'] : [named]) {
    for (const folder of folders) {
      const file = join(folder, nameOf(host, port))
      const read = await readToken(folder, file)
      if (read === undefined) continue
      if ('problem' in read) {
        problems.push(read.problem)
        continue
      }
      url.hostname = host.includes(':') ? `[${host}]` : host
      return { ok: true, token: read.token, file, base: url.href }
    }
  }
  if (problems.length > 0) return { ok: false, why: problems.join('; ') }
  return { ok: false, why: `no token file for port ${port} in ${folders.join(' or ')}` }
}

/** Folders for token files of this user's gateways, best first. */
function runFolders({ XDG_RUNTIME_DIR: runtime }: Env): string[] {
  const own = join(tmpdir(), `breakwater-${process.getuid?.() ?? 'user'}`)
  return runtime !== undefined && isAbsolute(runtime) ? [join(runtime, 'breakwater'), own] : [own]
}

/** Returns the first trusted run folder, created if missing. Undefined when no folder is trusted. Never rejects. */
export async function openRunFolder(env: Env): Promise<string | undefined> {
  for (const folder of runFolders(env)) {
    const problem = await prepareRunFolder(folder).catch((error: Error) => error.message)
    if (problem === undefined) return folder
  }
  return undefined
}

/** The name of a control plane's token file. `host` is an address, no host name. */
const nameOf = (host: string, port: string) => `control-${bare(host).replaceAll(':', '_')}-${port}.token`

const bare = (host: string) => host.replace(/^\[|\]$/g, '')

/** Makes the folder if missing. Resolves to the reason when the folder cannot be trusted; undefined when trusted. */
async function prepareRunFolder(folder: string): Promise<string | undefined> {
  await mkdir(folder, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error
  })
  return distrust(folder)
}

/**
 * Resolves to the reason when a run folder cannot be trusted; undefined when trusted. Another user may have made the
 * folder first. So it must belong to our user, be no link, and be closed to other users.
 */
async function distrust(folder: string): Promise<string | undefined> {
  const found = await lstat(folder)
  if (!found.isDirectory()) return `${folder} is no folder`
  if (isAnothers(found)) return `${folder} belongs to another user`
  return process.getuid === undefined || (found.mode & 0o077) === 0
    ? undefined
    : `${folder} is open to other users (mode ${(found.mode & 0o777).toString(8)}, expected 700)`
}

/**
 * Makes the state folder if missing. Resolves to the reason when other users may write there; undefined when safe.
 * Other users may read it, because the operator chose the folder.
 */
async function prepareStateFolder(folder: string): Promise<string | undefined> {
  makeFolder(folder, 0o700)
  const found = await stat(folder)
  if (isAnothers(found)) return `${folder} belongs to another user`
  return process.getuid === undefined || (found.mode & 0o022) === 0
    ? undefined
    : `other users may write to ${folder} (mode ${(found.mode & 0o777).toString(8)})`
}

const isAnothers = ({ uid }: { readonly uid: number }) =>
  process.getuid !== undefined && uid !== process.getuid()

/** Writes the file atomically, replacing any file of the name; resolves to its path. */
async function write(folder: string, name: string, token: string): Promise<string> {
  const path = join(folder, name)
  const draft = join(folder, `.${name}.${randomBytes(6).toString('hex')}`)
  // Flag `x`: fails if the file exists, so never writes to a file or link of another user.
  const file = await open(draft, 'wx', 0o600)
  try {
    await file.writeFile(`${token}\n`)
    await file.close()
    await rename(draft, path)
  } catch (error) {
    await file.close()
    await rm(draft, { force: true })
    throw error
  }
  return path
}

/** Resolves to the token in a file, or to the problem with the file; undefined when the file does not exist. */
async function readToken(
  folder: string,
  path: string,
): Promise<{ readonly token: string } | { readonly problem: string } | undefined> {
  try {
    const problem = await distrust(folder)
    if (problem !== undefined) return { problem }
    // O_NONBLOCK: if the path is a pipe, does not wait for its writer.
    const file = await open(
      path,
      constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0),
    )
    try {
      const found = await file.stat()
      if (!found.isFile() || found.size > TOKEN_BYTES * 2) return { problem: `${path} holds no token` }
      if (isAnothers(found)) return { problem: `${path} belongs to another user` }
      const text = await file.readFile('utf8')
      return TOKEN.test(text) ? { token: text.trimEnd() } : { problem: `${path} holds no token` }
    } finally {
      await file.close()
    }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    return code === 'ENOENT' ? undefined : { problem: `${path} cannot be read: ${code ?? message}` }
  }
}
