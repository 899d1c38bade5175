import type { Env } from '../../config/files/interpolate.ts'
import { Misuse, type Output, runCommand, unknownCommand } from '../shared/arguments.ts'
import { http } from './http.ts'
import { stdio } from './stdio.ts'

const usage = `breakwater proxy stdio | http: the commands stdio and http, under the names of mcp-chaos

  breakwater proxy stdio [--plan FILE] [--strict] -- PROGRAM [ARGUMENT …]
  breakwater proxy http --upstream URL [--plan FILE] [--strict] [--port PORT]`

const proxies = { stdio, http }

export function proxy([name = '', ...args]: string[], out: Output, env: Env): Promise<number> {
  if (Object.hasOwn(proxies, name)) return proxies[name as keyof typeof proxies](args, out, env)
  const asked = name === '-h' || name === '--help' ? ['--help'] : []
  return runCommand(asked, { usage, options: {} }, out, () => {
    throw new Misuse(unknownCommand(name, Object.keys(proxies)))
  })
}
