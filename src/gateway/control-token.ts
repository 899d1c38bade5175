import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { lstat, mkdir, open, rename, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import type { Env } from '../config/files/interpolate.ts'
import { isLoopback } from '../units/address.ts'
import { makeFolder } from '../units/folder.ts'

/**
 * The control token of a gateway without a token in its config. The gateway makes the token at start and writes a file
 * readable only by its own user. Commands of the same user find the file by the address of the control plane.
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
  /** Why the token is missing in a folder, one sentence each. */
  readonly problems: readonly string[]
  /** Removes the files. Call before giving up the address, else a new gateway's files may go. Never rejects. */
  remove(): Promise<void>
}

/** Writes the token into the state folder, if set, and into the first trusted run folder. Never rejects. */
export async function keepToken({ token, control, stateDir, env }: KeepOptions): Promise<KeptToken> {
  const { hostname, port } = new URL(control)
  const name = nameOf(hostname, port)
  const files: string[] = []
  const problems: string[] = []
  /** Resolves to whether the token is in the folder now. */
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
  // A name may have two addresses with different listeners. Each token may go only to its own address.
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

/** Makes the folder if missing. Resolves to why the folder cannot be trusted; undefined when trusted. */
async function prepareRunFolder(folder: string): Promise<string | undefined> {
  await mkdir(folder, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error
  })
  return distrust(folder)
}

/** Any user may have made this folder under /tmp first, so it must be ours, no link, and closed to others. */
async function distrust(folder: string): Promise<string | undefined> {
  const found = await lstat(folder)
  if (!found.isDirectory()) return `${folder} is no folder`
  if (isAnothers(found)) return `${folder} belongs to another user`
  return process.getuid === undefined || (found.mode & 0o077) === 0
    ? undefined
    : `${folder} is open to other users (mode ${(found.mode & 0o777).toString(8)}, expected 700)`
}

/** Other users may read the state folder, as the operator chose it, but not write there. */
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
  // Exclusive, so never writes through a file or link planted by another user.
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

/** Undefined when the file does not exist. */
async function readToken(
  folder: string,
  path: string,
): Promise<{ readonly token: string } | { readonly problem: string } | undefined> {
  try {
    const problem = await distrust(folder)
    if (problem !== undefined) return { problem }
    // O_NONBLOCK: does not wait for the other end of a pipe.
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
