import type { Env } from '../../config/files/interpolate.ts'
import { formatIssue } from '../../config/issues/issues.ts'
import type { KnownTools } from '../../config/issues/idle.ts'
import { loadConfig } from '../../config/load.ts'
import { isLoopback, parseAddress } from '../../units/address.ts'
import { numbered } from '../../units/numbered.ts'
import type { Config } from '../../config/schema/schema.ts'
import { redact } from '../../config/secrets/redact.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { plain } from '../../telemetry/colours.ts'
import { controlAccess, optionLines, type Output, runCommand } from '../shared/arguments.ts'
import { controlAt } from '../shared/control.ts'
import { configNames, findConfig, namedConfig, noConfig } from './find-config.ts'

const options = {
  config: { kind: 'text', value: 'FILE', about: 'the same' },
  token: controlAccess.token,
} as const

const usage = `breakwater validate [FILE]

  Checks a config and prints all errors with their lines. Default of FILE: the first of
  ${configNames.join(', ')}. If its gateway runs on this machine, the command also checks the
  config's tool names against the gateway's servers. Exit code 0 for a usable config, else 1.

${optionLines(options)}`

/** `breakwater validate [FILE]`: checks a config and prints all findings. Resolves to the exit code. */
export function validate(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options }, out, async (values, positionals) => {
    const file = namedConfig(values.config, positionals) ?? (await findConfig(process.cwd()))
    if (file !== undefined) return check(file, values.token, out, env)
    out.stderr(`breakwater: ${noConfig}`)
    return 1
  })
}

async function check(file: string, token: string | undefined, out: Output, env: Env): Promise<number> {
  const read = await loadConfig(file, env)
  const known = read.ok ? await knownTools(read.config, token, env) : undefined
  const loaded = known === undefined ? read : await loadConfig(file, env, known.tools)
  for (const issue of loaded.ok ? loaded.warnings : loaded.errors) out.stderr(formatIssue(issue))
  if (loaded.ok) {
    out.stdout(`${file} is ${(out.paint ?? plain)('good', 'valid')}: ${summary(loaded.config)}`)
    if (known !== undefined) out.stdout(`  ${known.note}`)
  } else out.stderr(`${file} is not valid: ${numbered(loaded.errors.length, 'error')}`)
  return loaded.ok ? 0 : 1
}

/** The known tools of servers. The note says which gateway listed them, or why they are unknown. */
interface Known {
  readonly tools: KnownTools
  readonly note: string
}

/**
 * Resolves to the tools of all servers that the gateway at the control port runs with the same command or URLs as the
 * config. Undefined when the config names no tools, when the port is on another machine, or when nothing listens there.
 * Waits at most 2 s per answer.
 */
async function knownTools(config: Config, token: string | undefined, env: Env): Promise<Known | undefined> {
  const { gateway, mcpServers } = config
  const address = parseAddress(gateway.control)
  if (!namesTools(config) || address === undefined || !isLoopback(address.host)) return undefined
  const base = `http://${gateway.control}`
  const hurry = new Cancellation()
  hurry.abort('it may hang')
  const control = controlAt({ base, token: token ?? gateway.controlToken, env, hurry })
  const inForce = await control({ method: 'GET', path: '/admin/config' })
  const listed = inForce.ok ? await control({ method: 'GET', path: '/admin/servers' }) : inForce
  if (!listed.ok) {
    if (listed.isAbsent === true) return undefined
    return { tools: new Map(), note: `tools were not checked: ${listed.message}` }
  }
  const isGateway = inForce.ok && isObject(inForce.value) && isObject(inForce.value.config)
  if (!isGateway)
    return { tools: new Map(), note: `tools were not checked: ${base} is not the control port of a gateway` }
  const tools = new Map<string, readonly string[]>()
  const same = sameServers(config, inForce.value)
  for (const server of Array.isArray(listed.value) ? (listed.value as unknown[]) : []) {
    const name = isObject(server) && server.state === 'up' ? server.name : undefined
    if (typeof name !== 'string' || !same.includes(name)) continue
    const one = await control({ method: 'GET', path: `/admin/servers/${encodeURIComponent(name)}` })
    if (!one.ok || !isObject(one.value) || !Array.isArray(one.value.tools)) continue
    const { tools: offered, excluded } = one.value
    // Includes tools that the gateway excludes, because the file may offer them.
    const keys = offered.map((entry: unknown) => (isObject(entry) ? entry.key : undefined))
    const all = [...keys, ...(Array.isArray(excluded) ? (excluded as unknown[]) : [])]
    tools.set(
      name,
      all.filter((tool) => typeof tool === 'string'),
    )
  }
  const unknown = Object.keys(mcpServers).filter((name) => !mcpServers[name]!.disabled && !tools.has(name))
  if (tools.size === 0)
    return {
      tools,
      note: `tools were not checked: the gateway at ${base} has no server of the file up with the same command or URL`,
    }
  const except =
    unknown.length === 0
      ? ''
      : `, except tools of ${unknown.join(', ')}: not up, or with another entry in the gateway`
  return { tools, note: `tools were checked against the gateway at ${base}${except}` }
}

function namesTools({ mcpServers, policies, chaos, experiments }: Config): boolean {
  const { defaults, overrides, sets } = policies
  const named = [
    ...[...overrides, ...chaos.faults, ...experiments].map(({ match }) => match?.tool),
    ...[defaults, ...overrides, ...Object.values(sets)].map(({ degrade }) => degrade && degrade.fallback),
    ...Object.values(mcpServers).flatMap(({ health, tools: { include, exclude } }) => [
      health && health.tool,
      ...include.filter((pattern) => pattern !== '*'),
      ...exclude,
    ]),
  ]
  return named.some(Boolean)
}

/** Returns servers run by a gateway with the same command or URLs. */
function sameServers(config: Config, inForce: unknown): string[] {
  const there = isObject(inForce) && isObject(inForce.config) ? inForce.config.mcpServers : undefined
  const here = (redact(config) as Config).mcpServers
  const place = (server: unknown) => {
    const { type, command, args, cwd, urls } = isObject(server) ? server : {}
    return JSON.stringify([type, command, args, cwd, urls])
  }
  return isObject(there) ? Object.keys(here).filter((name) => place(here[name]) === place(there[name])) : []
}

function summary({ mcpServers, policies, chaos }: Config): string {
  const servers = Object.values(mcpServers)
  const disabled = servers.filter((server) => server.disabled).length
  const parts = [numbered(servers.length, 'server') + (disabled === 0 ? '' : ` (${disabled} disabled)`)]
  if (policies.overrides.length > 0) parts.push(numbered(policies.overrides.length, 'policy override'))
  const off = chaos.enabled ? '' : ' that cannot be armed (chaos.enabled is false)'
  if (chaos.faults.length > 0) parts.push(numbered(chaos.faults.length, 'fault') + off)
  return parts.join(', ')
}
