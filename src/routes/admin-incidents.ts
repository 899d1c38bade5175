import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import { type Incident, type Incidents } from '../registry/health/incidents.ts'
import { shown } from '../registry/health/notices.ts'
import { malformed, read } from './answers.ts'

export interface AdminIncidentsParts {
  readonly incidents: Pick<Incidents, 'list' | 'get'>
}

const query = z.strictObject({
  server: z.string().max(64).optional().describe('Only incidents of this server.'),
  state: z.enum(['open', 'closed']).optional().describe('Only open, or only closed incidents.'),
  limit: z.coerce.number().int().min(1).max(1_000).default(100).describe('Most incidents, newest first.'),
})

interface ById {
  readonly Params: { readonly id: string }
}

/** Registers `/admin/incidents`, newest first, and `/admin/incidents/{id}`. */
export function registerAdminIncidents(app: FastifyInstance, { incidents }: AdminIncidentsParts): void {
  app.get('/admin/incidents', (request, reply) => {
    const asked = read(query, request.query, 'the query')
    if (!asked.ok) return malformed(reply, asked)
    const { server, state, limit } = asked.value
    const found = incidents
      .list()
      .filter(
        (one) =>
          (server === undefined || one.server === server) &&
          (state === undefined || (one.endedAt === undefined) === (state === 'open')),
      )
    return { total: found.length, incidents: found.slice(0, limit).map(withNotices) }
  })

  app.get<ById>('/admin/incidents/:id', (request, reply) => {
    const incident = incidents.get(request.params.id)
    if (incident === undefined)
      return reply.code(404).send({ error: `there is no incident ${request.params.id.slice(0, 64)}` })
    return withNotices(incident)
  })
}

/** Returns an incident with the outcome of its notices, by the names of webhooks, because their URLs are secret. */
const withNotices = (incident: Incident) => ({ ...shown(incident), notices: incident.notices })
