import { parseArgs } from 'node:util'
import { version } from '../protocol/identity.ts'
import { printableLines } from '../telemetry/printable.ts'
import { chaos } from './chaos.ts'
import { http } from './http.ts'
import { scenario } from './scenario.ts'
import { start } from './start.ts'
import { stdio } from './stdio.ts'
import { token } from './token.ts'
import { validate } from './validate.ts'

const usage = `breakwater: an MCP gateway with a built-in chaos and resilience mesh

  breakwater start      runs the gateway
  breakwater validate   checks a config and says what is wrong; exit code 0 or 1
  breakwater chaos      drives the faults of a running gateway
  breakwater scenario   runs ready-made faults against a running gateway
  breakwater stdio      puts the mesh around one server on standard input and output
  breakwater http       puts the mesh around one server behind HTTP
  breakwater token      prints the control token of a running gateway of this user
                        the last five explain themselves with --help

  --config FILE         the config (default: config/gateway.yaml)
  --host HOST           where the data plane binds, whatever the config says  [start]
  --port PORT           the data plane's port; the control plane's is one up  [start]
  --log-level LEVEL     trace, debug, info, warn, error or silent             [start]
  --version, --help`

const options = {
  config: { type: 'string', default: 'config/gateway.yaml' },
  host: { type: 'string' },
  port: { type: 'string' },
  'log-level': { type: 'string', default: 'info' },
  version: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const

const out = {
  stdout: (line: string) => void process.stdout.write(`${printableLines(line)}\n`),
  stderr: (line: string) => void process.stderr.write(`${printableLines(line)}\n`),
}

/** Commands that read their arguments themselves. */
const others: Readonly<Record<string, (args: string[]) => Promise<number>>> = {
  chaos: (args) => chaos(args, out, process.env, process.stdout.columns),
  scenario: (args) => scenario(args, out, process.env),
  stdio: (args) => stdio(args, out, process.env),
  http: (args) => http(args, out, process.env),
  token: (args) => token(args, out, process.env),
}

/** Runs the command that the arguments name. Resolves to the exit code. */
export async function run(args: string[]): Promise<number> {
  const [name = '', ...own] = args
  if (Object.hasOwn(others, name)) return others[name]!(own)
  let parsed
  try {
    parsed = parseArgs({ args, options, allowPositionals: true })
  } catch (error) {
    return misused((error as Error).message)
  }
  const { values, positionals } = parsed
  if (values.version === true) return said(version)
  if (values.help === true) return said(usage)
  const [command, ...rest] = positionals
  if (rest.length > 0) return misused(`unexpected argument "${rest[0]}"`)
  switch (command) {
    case 'start':
      return start({ ...values, logLevel: values['log-level'] }, out)
    case 'validate':
      return validate({ config: values.config }, out, process.env)
    case undefined:
      return misused('which command?')
    default:
      return misused(`unknown command "${command}"`)
  }
}

function said(text: string): number {
  out.stdout(text)
  return 0
}

function misused(message: string): number {
  out.stderr(`breakwater: ${message}\n\n${usage}`)
  return 2
}
