import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { makeFolder } from '../units/folder.ts'
import { LevelProcess } from './records-level.ts'

/**
 * The lock of a state folder is the lock of its LevelDB. The operating system holds the lock, and releases the lock when
 * the process of the LevelDB ends.
 */

/** File in the state folder with the id of the process that holds or held the lock, for messages. */
const HOLDER = 'gateway.pid'

/** Returns the folder of the LevelDB. */
export const recordsFolder = (stateDir: string): string => join(stateDir, 'records')

/** Writes the id of this process, which holds the lock. */
export const noteHolder = (stateDir: string): Promise<void> =>
  writeFile(join(stateDir, HOLDER), String(process.pid), { mode: 0o600 })

/** Returns the id of the process that holds the lock, or held it last; `unknown` without the file. */
export const holderOf = async (stateDir: string): Promise<string> =>
  (await readFile(join(stateDir, HOLDER), 'utf8').catch(() => 'unknown')).trim()

export interface StateLock {
  release(): Promise<void>
}

/**
 * Locks a state folder for a command, so that no gateway uses the folder. Waits up to 3 s. Rejects when a gateway uses
 * the folder, and when the LevelDB cannot be opened.
 */
export async function lockState(stateDir: string): Promise<StateLock> {
  const folder = recordsFolder(stateDir)
  makeFolder(folder, 0o700)
  const level = new LevelProcess(folder)
  try {
    await level.open()
  } catch (error) {
    await level.close().catch(() => undefined)
    const { code, message } = error as NodeJS.ErrnoException
    if (code !== 'LEVEL_LOCKED') throw new Error(`${folder} cannot be locked: ${message}`, { cause: error })
    throw new Error(
      `a gateway uses ${stateDir} (process ${await holderOf(stateDir)}): stop the gateway first`,
      {
        cause: error,
      },
    )
  }
  await noteHolder(stateDir)
  return { release: () => level.close() }
}
