import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { existsSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import type { StdioServerConfig } from '../../config/schema/server-schema.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Log } from '../../telemetry/log.ts'
import { placeUnderUs } from './groups.ts'

/** The program to start, with its environment and its folder. */
export type Program = Pick<StdioServerConfig, 'command' | 'args' | 'env' | 'cwd'>

/** Starts a program as the leader of a process group of its own. Rejects with a `GatewayError`. */
export function launch(program: Program, log: Log): Promise<ChildProcessWithoutNullStreams> {
  const { command, args, env, cwd } = program
  return new Promise((resolve, reject) => {
    try {
      const place = placeUnderUs(log)
      const child = spawn(command, args, {
        cwd,
        env: { ...childEnv(process.env, env), ...place.env },
        detached: true,
        stdio: ['pipe', 'pipe', 'pipe'],
        windowsHide: true,
      })
      if (child.pid !== undefined) place.taken(child)
      child.once('spawn', () => resolve(child))
      child.on('error', (error) => reject(launchError(program, error)))
    } catch (error) {
      reject(launchError(program, error as Error))
    }
  })
}

/** Returns the error for a program that cannot be started. */
export function launchError(
  { command, cwd }: Pick<Program, 'command' | 'cwd'>,
  error: Pick<Error, 'message'> & { readonly code?: string },
): GatewayError {
  return gatewayError('upstream_unavailable', whyNotLaunched(command, cwd, error.code ?? error.message), {
    cause: 'process_exit',
  })
}

/** In the words of shells, where they have any. */
function whyNotLaunched(command: string, cwd: string | undefined, code: string): string {
  const mayBeFolder = ['ENOENT', 'ENOTDIR', 'EACCES', 'ELOOP'].includes(code)
  if (mayBeFolder && cwd !== undefined && !isFolder(cwd))
    return `cannot start ${command}: the working folder does not exist, or may not be entered: ${cwd}`
  switch (code) {
    case 'ENOENT':
      return command.includes('/') && existsSync(resolve(cwd ?? '', command))
        ? `cannot start ${command}: what its first line names to run it does not exist`
        : `command not found: ${command}${/\s/.test(command) ? '; its arguments go into "args"' : ''}`
    case 'EACCES':
      return `permission denied: ${command} is not an executable file (EACCES)`
    case 'ENOEXEC':
      return `cannot execute ${command}: it is no program of this machine, or a script without a #! line (ENOEXEC)`
    default:
      return `cannot start ${command}${cwd === undefined ? '' : ` in ${cwd}`} (${code})`
  }
}

/** Whether it is a folder, as far as we may look: this is asked where nothing may be thrown. */
function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    // Missing, a loop of links, or in a folder that we may not enter: nothing can be started there.
    return false
  }
}

/**
 * The variables that a server inherits of our own environment: who and where it is, and how it speaks to people. No variable
 * may hold a secret. So there are neither proxies (their URLs carry passwords) nor settings of package managers;
 * a server that needs those names them in its own `env`.
 */
const inherited = [
  'HOME',
  'LANG',
  'LC_ALL',
  'LC_CTYPE',
  'LOGNAME',
  'PATH',
  'SHELL',
  'TERM',
  'TMPDIR',
  'TZ',
  'USER',
] as const

/** The environment of a child process: the safe part of ours, and what is configured on top of it. */
export function childEnv(
  own: NodeJS.ProcessEnv,
  configured: Readonly<Record<string, string>>,
): Record<string, string> {
  const env: Record<string, string> = {}
  for (const name of inherited) {
    const value = own[name]
    // A value that begins so is an exported shell function, which a shell would run.
    if (value !== undefined && !value.startsWith('()')) env[name] = value
  }
  return { ...env, ...configured }
}
