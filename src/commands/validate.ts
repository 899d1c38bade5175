import type { Env } from '../config/files/interpolate.ts'
import { formatIssue } from '../config/issues/issues.ts'
import { loadConfig } from '../config/load.ts'
import type { Config } from '../config/schema/schema.ts'

/** Where a command writes, line by line. */
export interface Out {
  readonly stdout: (line: string) => void
  readonly stderr: (line: string) => void
}

/** Checks a config and prints all that is wrong with it. Returns the exit code: 0 when it can be used, else 1. */
export async function validate({ config: file }: { config: string }, out: Out, env: Env): Promise<number> {
  const loaded = await loadConfig(file, env)
  for (const issue of loaded.ok ? loaded.warnings : loaded.errors) out.stderr(formatIssue(issue))
  if (loaded.ok) out.stdout(`${file} is valid: ${summary(loaded.config)}`)
  else out.stderr(`${file} is not valid: ${count(loaded.errors.length, 'error')}`)
  return loaded.ok ? 0 : 1
}

function summary({ mcpServers, policies }: Config): string {
  const servers = Object.values(mcpServers)
  const disabled = servers.filter((server) => server.disabled).length
  const parts = [count(servers.length, 'server') + (disabled === 0 ? '' : ` (${disabled} disabled)`)]
  if (policies.overrides.length > 0) parts.push(count(policies.overrides.length, 'policy override'))
  return parts.join(', ')
}

const count = (number: number, noun: string) => `${number} ${noun}${number === 1 ? '' : 's'}`
