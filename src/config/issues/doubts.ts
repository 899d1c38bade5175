import { glob } from '../../mesh/match.ts'
import { faultFindings } from './chaos-rules.ts'
import type { Finding } from './finding.ts'
import type { Config } from '../schema/schema.ts'

/** What is allowed and yet hardly meant. */
export function doubts(config: Config): Finding[] {
  return [
    ...noServers(config),
    ...idleOverrides(config),
    ...idleSettings(config),
    ...faultFindings(config, 'warning'),
  ]
}

function noServers({ mcpServers }: Config): Finding[] {
  if (Object.values(mcpServers).some(({ disabled }) => !disabled)) return []
  return [{ path: ['mcpServers'], at: 'key', message: 'no server is configured, or all are disabled' }]
}

function idleOverrides({ mcpServers, policies }: Config): Finding[] {
  const names = Object.keys(mcpServers)
  return policies.overrides.flatMap(({ match, ...settings }, index) => {
    const findings: Finding[] = []
    const path = ['policies', 'overrides', index]
    const { server, tool, method } = match
    if (server !== undefined && !names.some(glob(server))) {
      findings.push({
        path: [...path, 'match', 'server'],
        at: 'value',
        message: `"${server}" matches no server`,
      })
    }
    if (tool !== undefined && method !== undefined && !glob(method)('tools/call')) {
      const message = 'never matches: only calls of the method tools/call have a tool'
      findings.push({ path: [...path, 'match', 'method'], at: 'value', message })
    }
    if (Object.keys(settings).length === 0) findings.push({ path, at: 'key', message: 'sets no policy' })
    return findings
  })
}

function idleSettings({ mcpServers }: Config): Finding[] {
  return Object.entries(mcpServers).flatMap(([name, server]) => {
    const findings: Finding[] = []
    const path = ['mcpServers', name]
    if (server.tools.include.length === 0) {
      findings.push({
        path: [...path, 'tools', 'include'],
        at: 'key',
        message: 'is empty, so that no tool is offered',
      })
    }
    if (server.type === 'stdio') return findings
    if (new Set(server.urls).size < server.urls.length) {
      findings.push({ path: [...path, 'urls'], at: 'key', message: 'lists a replica more than once' })
    }
    if (server.tls !== undefined && !server.urls.some((url) => /^https:/i.test(url))) {
      findings.push({
        path: [...path, 'tls'],
        at: 'key',
        message: 'has no effect: no URL of this server is https://',
      })
    }
    if (server.tls?.rejectUnauthorized === false) {
      const message = 'anyone between here and the server can read and change every call'
      findings.push({ path: [...path, 'tls', 'rejectUnauthorized'], at: 'value', message })
    }
    return findings
  })
}
