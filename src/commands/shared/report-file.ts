import { access, constants, lstat, realpath, rename, rm, stat, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'

/** Resolves links to their target file; a missing file is fine. */
async function placeOf(path: string): Promise<{ readonly file: string; readonly isReplaced: boolean }> {
  const isMissing = ({ code }: NodeJS.ErrnoException) => code === 'ENOENT'
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (!isMissing(error)) throw error
  })
  if (found?.isDirectory() === true) throw new Error('it is a folder')
  if (found !== undefined) return { file: await realpath(path), isReplaced: found.isFile() }
  const link = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (!isMissing(error)) throw error
  })
  // A dangling link's target is known to the system only.
  return { file: path, isReplaced: link === undefined }
}

/** Resolves to why no report can be written there, or undefined. */
export async function unwritable(path: string): Promise<string | undefined> {
  try {
    const { file, isReplaced } = await placeOf(path)
    if (isReplaced) await access(dirname(file), constants.W_OK)
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}

/**
 * Writes a report as a whole or not at all, so readers never see a part. Links stay. Non-regular files, such as pipes,
 * are written directly.
 */
export async function writeReport(path: string, text: string): Promise<void> {
  const { file, isReplaced } = await placeOf(path)
  if (!isReplaced) return writeFile(file, text)
  const draft = `${file}.${process.pid}.new`
  try {
    await writeFile(draft, text)
    await rename(draft, file)
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
}
