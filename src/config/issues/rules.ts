import { isLoopback, parseAddress } from '../schema/address.ts'
import { faultFindings } from './chaos-rules.ts'
import { contradictions } from './policy-rules.ts'
import type { Finding } from './finding.ts'
import type { Config } from '../schema/schema.ts'

/** What no schema of one key can see; each finding makes the config unusable. */
export function brokenRules(config: Config): Finding[] {
  return [
    ...planes(config),
    ...serverNames(config),
    ...sentTwice(config),
    ...contradictions(config),
    ...faultFindings(config, 'error'),
  ]
}

function planes({ gateway }: Config): Finding[] {
  const findings: Finding[] = []
  const listen = parseAddress(gateway.listen)
  const control = parseAddress(gateway.control)
  const path = ['gateway', 'control']
  if (control !== undefined && !isLoopback(control.host) && gateway.controlToken === undefined) {
    const message = `${control.host} is not a loopback address: add "controlToken", or listen on 127.0.0.1`
    findings.push({ path, at: 'value', message })
  }
  if (control !== undefined && control.port !== 0 && control.port === listen?.port) {
    findings.push({
      path,
      at: 'value',
      message: `expected another port than "listen", found ${control.port} for both`,
    })
  }
  return findings
}

function serverNames({ gateway: { separator }, mcpServers }: Config): Finding[] {
  const seen = new Map<string, string>()
  return Object.keys(mcpServers).flatMap((name): Finding[] => {
    const path = ['mcpServers', name]
    const twin = seen.get(name.toLowerCase())
    seen.set(name.toLowerCase(), name)
    if (twin !== undefined) {
      return [
        { path, at: 'key', message: `differs from "${twin}" by case only, which people cannot tell apart` },
      ]
    }
    // The first separator in a tool's full name must be the one that we put there.
    if (`${name}${separator}`.indexOf(separator) === name.length) return []
    const message = `a server name may not contain or run into the separator "${separator}"`
    return [{ path, at: 'key', message }]
  })
}

function sentTwice({ mcpServers }: Config): Finding[] {
  return Object.entries(mcpServers).flatMap(([name, server]) => {
    if (server.type === 'stdio') return []
    const fixed = new Set(Object.keys(server.headers).map((header) => header.toLowerCase()))
    const message = 'would be sent twice: "headers" sets it as well'
    return Object.entries(server.forwardHeaders).flatMap(([from, to]): Finding[] =>
      fixed.has(to) ? [{ path: ['mcpServers', name, 'forwardHeaders', from], at: 'value', message }] : [],
    )
  })
}
