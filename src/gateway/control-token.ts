import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { lstat, mkdir, open, rename, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import type { Env } from '../config/files/interpolate.ts'
import { isLoopback } from '../units/address.ts'
import { makeFolder } from '../units/folder.ts'

/**
 * The control token of a gateway whose config has none: made at start, and kept in a file that only the user who runs
 * the gateway can read, where the commands of the same user find it by the address of the control plane.
 */

/** Bytes of chance in a token. */
const TOKEN_BYTES = 32

/** Tells people and scanners for secrets what it is, and no token begins with a dash, as an option of a command does. */
const PREFIX = 'bw_'

/** Content of a token file: the prefix, then `TOKEN_BYTES` bytes in base64url. */
const TOKEN = /^bw_[\w-]{43}\n?$/

export const newControlToken = (): string => `${PREFIX}${randomBytes(TOKEN_BYTES).toString('base64url')}`

export interface KeepOptions {
  readonly token: string
  /** Base URL of the control plane that listens. */
  readonly control: string
  /** Where state outlives the process, if anywhere. */
  readonly stateDir: string | undefined
  readonly env: Env
}

export interface KeptToken {
  /** Paths of the files that hold it. */
  readonly files: readonly string[]
  /** Why it is not where it should be, a sentence each. */
  readonly problems: readonly string[]
  /** Removes the files. Called while the address is still ours, so that they are no other gateway's. Never rejects. */
  remove(): Promise<void>
}

/** Writes the token into the state folder, if there is one, and into the first run folder that can be trusted. Never rejects. */
export async function keepToken({ token, control, stateDir, env }: KeepOptions): Promise<KeptToken> {
  const { hostname, port } = new URL(control)
  const name = nameOf(hostname, port)
  const files: string[] = []
  const problems: string[] = []
  /** Whether the token is in the folder now. */
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

/** A token for a gateway, or why there is none. */
export type FoundToken =
  | {
      readonly ok: true
      readonly token: string
      readonly file: string
      /** The URL that was asked for, with the address that the token is for in place of a name. */
      readonly base: string
    }
  | { readonly ok: false; readonly why: string }

/** Finds the token of the gateway whose control plane is at `base`, of this machine and this user. Never rejects. */
export async function findToken(base: string, env: Env): Promise<FoundToken> {
  const url = new URL(base)
  const named = bare(url.hostname)
  if (!isLoopback(named)) return { ok: false, why: 'its file is looked for on loopback addresses only' }
  const port = url.port || (url.protocol === 'https:' ? '443' : '80')
  const folders = runFolders(env)
  const problems: string[] = []
  // A name may lead to two addresses with a listener each: the token goes to the one that it is of.
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
  return { ok: false, why: `there is no file with it for port ${port} in ${folders.join(' or ')}` }
}

/** Where the files of this user's gateways are: the best place first. */
function runFolders({ XDG_RUNTIME_DIR: runtime }: Env): string[] {
  const own = join(tmpdir(), `breakwater-${process.getuid?.() ?? 'user'}`)
  return runtime !== undefined && isAbsolute(runtime) ? [join(runtime, 'breakwater'), own] : [own]
}

/** The first of these folders that can be trusted; it is made, unless it is there. Undefined when there is none. Never rejects. */
export async function openRunFolder(env: Env): Promise<string | undefined> {
  for (const folder of runFolders(env)) {
    const problem = await prepareRunFolder(folder).catch((error: Error) => error.message)
    if (problem === undefined) return folder
  }
  return undefined
}

/** A file's name says which control plane it is for; hosts are addresses. */
const nameOf = (host: string, port: string) => `control-${bare(host).replaceAll(':', '_')}-${port}.token`

const bare = (host: string) => host.replace(/^\[|\]$/g, '')

/** Makes the folder, unless it is there; why it cannot be trusted, if so. */
async function prepareRunFolder(folder: string): Promise<string | undefined> {
  await mkdir(folder, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error
  })
  return distrust(folder)
}

/** Everybody may make a folder of this name under /tmp first: it has to be ours, no link, and closed to all others. */
async function distrust(folder: string): Promise<string | undefined> {
  const found = await lstat(folder)
  if (!found.isDirectory()) return `${folder} is no folder`
  if (isAnothers(found)) return `${folder} belongs to another user`
  return process.getuid === undefined || (found.mode & 0o077) === 0
    ? undefined
    : `${folder} is open to other users (mode ${(found.mode & 0o777).toString(8)}, expected 700)`
}

/** The operator has chosen the state folder, and may let others read in it, but not write. */
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

/** Puts a file in place as a whole, whatever is there under its name; resolves to its path. */
async function write(folder: string, name: string, token: string): Promise<string> {
  const path = join(folder, name)
  const draft = join(folder, `.${name}.${randomBytes(6).toString('hex')}`)
  // Exclusive: a file that somebody has put there, or a link, is never written through.
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

/** Undefined when there is no such file. */
async function readToken(
  folder: string,
  path: string,
): Promise<{ readonly token: string } | { readonly problem: string } | undefined> {
  try {
    const problem = await distrust(folder)
    if (problem !== undefined) return { problem }
    // Not waiting for the other end of a pipe either.
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
