import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process'
import type { StdioServerConfig } from '../../config/schema/server-schema.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { childEnv } from './child-env.ts'
import type { Log } from '../../telemetry/log.ts'
import { placeUnderUs } from './groups.ts'

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

function launchError({ command, cwd }: Program, error: Error & { code?: string }): GatewayError {
  const where = cwd === undefined ? '' : ` in ${cwd}`
  return gatewayError(
    'upstream_unavailable',
    `cannot start ${command}${where} (${error.code ?? error.message})`,
  )
}
