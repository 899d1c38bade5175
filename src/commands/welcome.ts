import type { Output } from './shared/arguments.ts'
import { findConfig } from './run/find-config.ts'
import { usageOf } from './help.ts'
import type { Commands } from './listed.ts'

/**
 * `breakwater` without a command: prints next steps, which depend on whether the folder has a config. Resolves to the
 * exit code.
 */
export async function welcome(commands: Commands, out: Output): Promise<number> {
  const config = await findConfig(process.cwd())
  out.stdout(
    config === undefined
      ? `Breakwater is an MCP gateway with a built-in chaos and resilience mesh. There is no config in this folder.

  breakwater init                 writes a first breakwater.yaml
  breakwater start --config FILE  runs the gateway with your config
  breakwater demo                 shows the effect of the mesh, without any config
  breakwater help                 lists all commands`
      : `${usageOf(commands)}\n\nHere is a ${config}: \`breakwater start\` runs it.`,
  )
  return 0
}
