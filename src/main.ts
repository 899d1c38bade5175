#!/usr/bin/env node
import { printable } from './telemetry/printable.ts'
import { commands } from './commands/index.ts'
import { Terminal } from './commands/shared/terminal.ts'

/** Reasons for an unusable file, by error code. */
const causes: Readonly<Record<string, string>> = {
  EACCES: 'no permission',
  EPERM: 'no permission',
  EROFS: 'the file system is read-only',
  ENOSPC: 'the disk is full',
  ENOENT: 'no such file or folder',
  EISDIR: 'it is a folder',
  ENOTDIR: 'a part of the path is no folder',
}

/** Ignores errors of standard error, such as a full disk, because there is no other place to report them. */
process.stderr.on('error', () => undefined)

const out = new Terminal(process.stdout, process.stderr, process.env)

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // The reader, such as `head`, has closed the pipe: the rest of the output is dropped.
  if (error.code === 'EPIPE') {
    out.isClosed = true
    return
  }
  out.stderr(`breakwater: standard output: ${causes[error.code ?? ''] ?? printable(error.message)}`)
  process.exit(1)
})

/** Aliases of commands. */
const aliases: Readonly<Record<string, string>> = {
  '--help': 'help',
  '-h': 'help',
  '--version': 'version',
  '-v': 'version',
}

/** Answers for command names that do not exist: they name the request of the admin API that does the same. */
const elsewhere: ReadonlyMap<string, string> = new Map([
  [
    'breaker',
    'POST /admin/breakers/{server}/{tool} at the control port opens, closes and resets breakers, and "breakwater status" shows them',
  ],
])

/** Runs the named command. Resolves to the exit code. */
async function run([given, ...args]: string[]): Promise<number> {
  if (given === undefined) {
    const { welcome } = await import('./commands/welcome.ts')
    return welcome(commands, out)
  }
  const name = Object.hasOwn(aliases, given) ? (aliases[given] ?? given) : given
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (command !== undefined) return (await command.load())(args, out, process.env)
  const { unknownCommand, unknownOption } = await import('./commands/shared/arguments.ts')
  const what = given.startsWith('-')
    ? `${unknownOption(given, ['help', 'version'])}; the command comes first, its options follow`
    : [unknownCommand(given, Object.keys(commands)), elsewhere.get(given.replace(/s$/, '')) ?? []]
        .flat()
        .join('; ')
  out.stderr(`breakwater: ${what}\n\nAll commands: breakwater help`)
  return 2
}

process.exitCode = await run(process.argv.slice(2)).catch((error: NodeJS.ErrnoException) => {
  // Errors of the operating system are reported with a message; any other error is a bug and is thrown with its stack.
  if (error.syscall === undefined) throw error
  const { code = '', message, path } = error
  const cause = causes[code]
  const words = cause === undefined || path === undefined ? message : `${path}: ${cause}`
  out.stderr(`breakwater: ${printable(words)}`)
  return 1
})
