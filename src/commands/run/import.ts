import { writeFile } from 'node:fs/promises'
import type { Env } from '../../config/files/interpolate.ts'
import { importFiles } from '../../config/import/import.ts'
import { Misuse, optionLines, type Output, runCommand } from '../shared/arguments.ts'

const options = {
  out: { kind: 'text', value: 'FILE', about: 'file for the config, instead of standard output' },
  force: { kind: 'flag', about: 'overwrites an existing file' },
} as const

const usage = `breakwater import FILE… [--out FILE] [--force]

  Writes a config from clients' configs (Claude, Cursor, VS Code, Windsurf, Cline, Roo Code, Gemini CLI, Zed) and from the
  server.json of a registry. Likely secrets become environment variables; standard error names the variables to set.

${optionLines(options)}`

/** `breakwater import`: resolves to the exit code; 1 when a file cannot be read or written. */
export function importConfigs(args: readonly string[], out: Output, env: Env): Promise<number> {
  const asked = { usage, options }
  return runCommand(args, asked, out, async ({ out: target, force }, files) => {
    if (files.length === 0) throw new Misuse('FILE is missing')
    const imported = await importFiles(files, env)
    if (!imported.ok) {
      for (const problem of imported.problems) out.stderr(problem)
      return 1
    }
    const { text, servers, variables, notes } = imported
    if (target === undefined) out.stdout(text.trimEnd())
    else {
      const problem = await write(target, text, force)
      if (problem !== undefined) {
        out.stderr(`breakwater: ${problem}`)
        return 1
      }
      out.stderr(`breakwater: wrote ${target} with ${servers} ${servers === 1 ? 'server' : 'servers'}`)
    }
    for (const note of notes) out.stderr(note)
    if (variables.length > 0) out.stderr('Set these environment variables before you start the gateway:')
    for (const name of variables) out.stderr(`  ${name}`)
    return 0
  })
}

/** Writes a file; resolves to a message if the file exists. Throws other system errors. */
async function write(file: string, text: string, force: boolean): Promise<string | undefined> {
  try {
    await writeFile(file, text, { flag: force ? 'w' : 'wx' })
    return undefined
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    return `${file} exists already; --force overwrites it`
  }
}
