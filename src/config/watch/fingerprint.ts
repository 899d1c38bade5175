import { createHash } from 'node:crypto'
import { realpath, stat } from 'node:fs/promises'
import { readText } from '../files/read-text.ts'

/** What a file was when it was last looked at. */
export interface Fingerprint {
  /** Changes whenever the content may have. Cheap to find out. */
  readonly cheap: string
  /** Changes when the content does. */
  readonly content: string
  /** Where the file really is, all links followed; undefined when it is not there. */
  readonly realPath: string | undefined
}

const ABSENT = 'absent'

/** Looks at `file`, and into it only when it may have changed since `last`. Never rejects. */
export async function fingerprint(file: string, last: Fingerprint | undefined): Promise<Fingerprint> {
  try {
    const realPath = await realpath(file)
    const stats = await stat(realPath, { bigint: true })
    const cheap = [realPath, stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join()
    if (cheap === last?.cheap) return last
    // Reading a pipe would take what is in it.
    const read = stats.isFile() ? await readText(realPath) : { problem: 'not a file' }
    const content = createHash('sha256').update(JSON.stringify(read)).digest('hex')
    return { cheap, content, realPath }
  } catch (error) {
    // Gone or out of reach: that is a state too, and the next look may find another.
    const code = (error as NodeJS.ErrnoException).code ?? ''
    return { cheap: ABSENT + code, content: ABSENT, realPath: undefined }
  }
}
