import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open, rename, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { isObject, parseJson } from '../protocol/jsonrpc.ts'
import { makeFolder } from '../units/folder.ts'

const FILE = 'gateway-id.json'

export interface GatewayId {
  /** `gw-` and 32 hex digits. */
  readonly id: string
  /** The reason for a new id in place of an earlier id. Undefined: the id is unchanged, or the first. */
  readonly renewed: string | undefined
  /** Whether an earlier process made the id. */
  readonly isKnown: boolean
}

/**
 * Returns the id of a gateway from a file in the state folder. The file contains its own inode number and creation
 * time. A copied or restored folder therefore gets a new id, and envelopes signed for the old id are void. Rejects when
 * the folder cannot be used.
 */
export async function openGatewayId(stateDir: string): Promise<GatewayId> {
  makeFolder(stateDir, 0o700)
  const path = join(stateDir, FILE)
  const known = await read(path)
  if (known?.isOriginal === true) return { id: known.id, renewed: undefined, isKnown: true }
  if (known !== undefined) await rename(path, `${path}.copied`)
  const file = await open(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600)
  try {
    const id = `gw-${randomBytes(16).toString('hex')}`
    await file.writeFile(`${JSON.stringify({ id, place: await placeOf(file) })}\n`)
    await file.sync()
    const renewed =
      known && `${path} was copied or restored: envelopes for ${known.id || 'the old id'} are void`
    return { id, renewed, isKnown: false }
  } finally {
    await file.close()
  }
}

async function read(
  path: string,
): Promise<{ readonly id: string; readonly isOriginal: boolean } | undefined> {
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  if (found === undefined) return undefined
  if (!found.isFile()) throw new Error(`${path} is no regular file`)
  const file = await open(path, 'r')
  try {
    const value = parseJson(await file.readFile('utf8'))
    const id = isObject(value) && typeof value.id === 'string' ? value.id : ''
    const isSound = isObject(value) && /^gw-[0-9a-f]{32}$/.test(id)
    return { id, isOriginal: isSound && value.place === (await placeOf(file)) }
  } finally {
    await file.close()
  }
}

/**
 * Returns the inode number and the creation time of a file. A copy of the file has another inode number. A reused inode
 * number has another creation time.
 */
async function placeOf(file: FileHandle): Promise<string> {
  const { ino, birthtimeNs } = await file.stat({ bigint: true })
  return `${ino}-${birthtimeNs}`
}
