import type { FastifyInstance } from 'fastify'
import { version } from '../protocol/identity.ts'

/** Descriptions by path. */
export type Directory = Readonly<Record<string, string>>

export const dataDirectory: Directory = {
  '/mcp': 'MCP: all servers, their tools as {server}__{tool}',
  '/mcp/{server}': 'MCP: one server as it is',
  '/livez': 'whether the process serves',
  '/readyz': 'whether the gateway is ready, and the state of each server',
}

/** Descriptions of the paths of the control plane that people open most often. */
export const controlDirectory: Directory = {
  '/metrics': 'Prometheus',
  '/admin/servers': 'servers, their states and tools',
  '/admin/mesh': 'policies in force and their settings',
  '/admin/chaos': 'faults and their effects',
  '/admin/experiments': 'experiments and their verdicts',
  '/admin/incidents': 'outages of servers',
  '/admin/sessions': 'sessions of agents',
  '/admin/config': 'the config in force',
}

/** Registers `GET /`: lists the paths as text, for people who open the port in a browser. */
export function registerRoot(app: FastifyInstance, directory: Directory): void {
  const paths = Object.entries(directory)
  const width = Math.max(...paths.map(([path]) => path.length))
  const lines = [
    `Breakwater ${version}`,
    '',
    ...paths.map(([path, about]) => `  ${path.padEnd(width)}  ${about}`),
    '',
  ]
  app.get('/', (request, reply) => {
    // Answers 404 to the request target `*`, because the router maps it to this path.
    if (!request.url.startsWith('/')) return reply.callNotFound()
    return reply.type('text/plain; charset=utf-8').send(lines.join('\n'))
  })
}
