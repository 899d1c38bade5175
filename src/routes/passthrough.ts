import proxy from '@fastify/http-proxy'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Live } from '../mesh/live.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Server } from '../registry/server.ts'

/** Headers of the agent that are for the gateway, and never for a server. */
const ours = ['authorization', 'cookie', 'proxy-authorization', 'mcp-session-id', 'origin']

/** `/proxy/{server}/*`: plain HTTP to a server whose entry says `passthrough: true`; nothing is looked at. */
export async function registerPassthrough(
  app: FastifyInstance,
  live: Live<GatewayGeneration>,
): Promise<void> {
  function serverOf(request: FastifyRequest): Server | undefined {
    const { server: name } = request.params as { server?: string }
    const server = live.current.servers.get(name ?? '')
    return server?.config.type !== 'stdio' && server?.config.passthrough === true ? server : undefined
  }

  await app.register(proxy, {
    prefix: '/proxy/:server',
    upstream: '',
    httpMethods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'],
    preHandler: (request, reply, done) => {
      if (serverOf(request) !== undefined) return done()
      void reply.code(404).send({ error: 'no such server, or its entry does not say passthrough: true' })
    },
    replyOptions: {
      getUpstream: (request) => {
        const config = serverOf(request as FastifyRequest)?.config
        return config === undefined || config.type === 'stdio' ? '' : new URL(config.urls[0] as string).origin
      },
      rewriteRequestHeaders: (request, headers) => {
        const config = serverOf(request as FastifyRequest)?.config
        const kept = Object.fromEntries(Object.entries(headers).filter(([name]) => !ours.includes(name)))
        return config === undefined || config.type === 'stdio' ? kept : { ...kept, ...config.headers }
      },
    },
  })
}
