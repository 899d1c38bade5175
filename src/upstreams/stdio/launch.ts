import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { existsSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import type { StdioServerConfig } from '../../config/schema/server-schema.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Log } from '../../telemetry/log.ts'
import { placeUnderUs } from './groups.ts'

export type Program = Pick<StdioServerConfig, 'command' | 'args' | 'env' | 'cwd'>

/** Starts a program as the leader of its own process group. Rejects with a `GatewayError`. */
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

export function launchError(
  { command, cwd }: Pick<Program, 'command' | 'cwd'>,
  error: Pick<Error, 'message'> & { readonly code?: string },
): GatewayError {
  return gatewayError('upstream_unavailable', whyNotLaunched(command, cwd, error.code ?? error.message), {
    cause: 'process_exit',
  })
}

/** Returns why a program could not be started, in the usual words of shells. */
function whyNotLaunched(command: string, cwd: string | undefined, code: string): string {
  const mayBeFolder = ['ENOENT', 'ENOTDIR', 'EACCES', 'ELOOP'].includes(code)
  if (mayBeFolder && cwd !== undefined && !isFolder(cwd))
    return `cannot start ${command}: the working folder does not exist, or may not be entered: ${cwd}`
  switch (code) {
    case 'ENOENT':
      return command.includes('/') && existsSync(resolve(cwd ?? '', command))
        ? `cannot start ${command}: the interpreter in its first line (#!) does not exist`
        : `command not found: ${command}${/\s/.test(command) ? '; its arguments go into "args"' : ''}`
    case 'EACCES':
      return `permission denied: ${command} is not an executable file (EACCES)`
    case 'ENOEXEC':
      return `cannot execute ${command}: not a program for this machine, or a script without a #! line (ENOEXEC)`
    default:
      return `cannot start ${command}${cwd === undefined ? '' : ` in ${cwd}`} (${code})`
  }
}

/** Whether the path is a folder, as far as visible. Never throws. */
function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    // The path is missing, a loop of links, or in a forbidden folder: no program can start there.
    return false
  }
}

/**
 * Variables that servers inherit from our environment: identity, place and language. None may hold a secret. So the
 * list has neither proxies (their URLs carry passwords) nor settings of package managers. A server that needs such
 * variables gets them from its own `env`.
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

/** Returns the environment of a child process: the safe part of ours, plus the configured variables. */
export function childEnv(
  own: NodeJS.ProcessEnv,
  configured: Readonly<Record<string, string>>,
): Record<string, string> {
  const env: Record<string, string> = {}
  for (const name of inherited) {
    const value = own[name]
    // A value with this start is an exported shell function, which a shell would run.
    if (value !== undefined && !value.startsWith('()')) env[name] = value
  }
  return { ...env, ...configured }
}
