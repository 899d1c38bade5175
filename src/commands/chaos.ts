import { parseArgs } from 'node:util'
import { near } from '../chaos/plan/near.ts'
import type { Env } from '../config/files/interpolate.ts'
import { Misuse, textOf, type Command } from './chaos/command.ts'
import { controlAt, DEFAULT_CONTROL } from './chaos/control.ts'
import { clear, clearAll, inject } from './chaos/inject.ts'
import { explain, plan } from './chaos/look.ts'
import { replay } from './chaos/replay.ts'
import { arm, disarm, kill, renew, status, unkill } from './chaos/status.ts'
import { usage } from './chaos/usage.ts'
import type { Out } from './validate.ts'

const commands: Readonly<Record<string, Command>> = {
  status,
  inject,
  clear,
  'clear-all': clearAll,
  arm,
  disarm,
  kill,
  unkill,
  renew,
  explain,
  replay,
  plan,
}

const common = {
  control: { type: 'string', default: DEFAULT_CONTROL },
  token: { type: 'string' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const

/** Characters of a line where the output is no terminal. */
const WIDTH = 120

/** `breakwater chaos …`: resolves to the exit code; 2 when the arguments make no sense. */
export async function chaos(args: readonly string[], out: Out, env: Env, width = WIDTH): Promise<number> {
  const [name = '', ...rest] = args
  if (['help', '--help', '-h'].includes(name)) return said(out)
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  try {
    if (command === undefined) throw new Misuse(unknown(name))
    const { values, positionals } = parsed(rest, command)
    if (values.help === true) return said(out)
    const control = String(values.control)
    if (!/^https?:\/\/[^/]/.test(control) || !URL.canParse(control))
      throw new Misuse(`--control must be a URL such as ${common.control.default}, not "${control}"`)
    const gateway = controlAt({ base: control, token: textOf(values, 'token'), env })
    return await command.run({ values, positionals, control: gateway, out, env, width })
  } catch (error) {
    if (!(error instanceof Misuse)) throw error
    out.stderr(`breakwater chaos: ${error.message}\n\n${usage}`)
    return 2
  }
}

function parsed(args: string[], { options = {}, positionals: names = [] }: Command) {
  let read
  try {
    read = parseArgs({ args, options: { ...common, ...options }, allowPositionals: true })
  } catch (error) {
    throw new Misuse((error as Error).message)
  }
  const { values, positionals } = read
  const missing = names[positionals.length]
  const strange = positionals[names.length]
  if (values.help !== true) {
    if (missing !== undefined) throw new Misuse(`${missing} is missing`)
    if (strange !== undefined) throw new Misuse(`unexpected argument "${strange}"`)
  }
  return { values, positionals }
}

function unknown(name: string): string {
  if (name === '') return 'which command?'
  const [meant] = near(name, Object.keys(commands))
  return `unknown command "${name}"${meant === undefined ? '' : `; did you mean ${meant}?`}`
}

function said(out: Out): number {
  out.stdout(usage)
  return 0
}
