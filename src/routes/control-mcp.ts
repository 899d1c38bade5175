import { createHash, timingSafeEqual } from 'node:crypto'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createMcpHandler, type McpHttpHandler } from '@modelcontextprotocol/server'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Agent } from '../approval/agent.ts'
import { createControlServer } from '../control/mcp/server.ts'
import type { Operations } from '../control/mcp/tool.ts'
import { allowsHost, isCrossOrigin } from '../downstream/http/server.ts'
import type { Millis } from '../mesh/clock.ts'
import { errorText, INVALID_REQUEST, isObject } from '../protocol/jsonrpc.ts'
import type { Log } from '../telemetry/log.ts'

/** Most requests of an agent under way at once, and most in each second. */
const MAX_IN_FLIGHT = 8
const MAX_PER_SECOND = 50

/** Further requests at once, only for `stop_run`. */
const PLACES_TO_STOP = 4

export interface ControlMcpParts {
  readonly operations: Operations
  readonly tokens: readonly {
    readonly name: string
    readonly sha256: string
    readonly tools: 'read' | 'write'
  }[]
  /** The bound host, without port. */
  readonly host: string
  readonly log: Log
}

interface Known extends Agent {
  readonly digest: Buffer
  inFlight: number
  second: Millis
  count: number
}

/** Registers `/mcp` of the control MCP server, for agents with a token of their own. Returns the handler to close. */
export function registerControlMcp(
  app: FastifyInstance,
  { operations, tokens, host, log }: ControlMcpParts,
): McpHttpHandler {
  const agents = tokens.map(({ name, sha256, tools }): Known => {
    return {
      name,
      mayWrite: tools === 'write',
      digest: Buffer.from(sha256, 'hex'),
      inFlight: 0,
      second: 0,
      count: 0,
    }
  })
  const handler = createMcpHandler(
    ({ authInfo }) => {
      const agent = agents.find(({ name }) => name === authInfo?.clientId)
      if (agent === undefined) throw new Error('a request without an agent reached the control MCP server')
      return createControlServer(agent, operations, (err) =>
        log.error(
          { err, agent: agent.name },
          'internal error in a tool of the control MCP server (a bug in Breakwater)',
        ),
      )
    },
    { onerror: (err) => log.debug({ err }, 'the control MCP server refused a request') },
  )

  app.addHook('onRequest', ({ headers, method, is404 }, reply, done) => {
    if (isCrossOrigin(headers) || !allowsHost(headers.host, host, []))
      return refuse(reply, 403, 'forbidden: another origin or host')
    const agent = agentOf(headers.authorization, agents)
    if (agent === undefined) {
      void reply.header('www-authenticate', 'Bearer')
      return refuse(reply, 401, 'unauthorized: send a token of gateway.controlMcp.tokens as a bearer token')
    }
    const second = Math.floor(operations.clock.now() / 1_000)
    if (agent.second !== second) Object.assign(agent, { second, count: 0 })
    if (++agent.count > MAX_PER_SECOND || agent.inFlight >= MAX_IN_FLIGHT + PLACES_TO_STOP) {
      void reply.header('retry-after', '1')
      return refuse(
        reply,
        429,
        `too many requests: at most ${MAX_PER_SECOND} a second and ${MAX_IN_FLIGHT} at once`,
      )
    }
    if (method !== 'POST' && !is404) {
      void reply.header('allow', 'POST')
      return refuse(reply, 405, 'method not allowed: send each message by POST')
    }
    done()
  })

  app.all('/mcp', async (request, reply) => {
    const agent = agentOf(request.headers.authorization, agents)!
    // The limit counts requests, so a request must not hold many calls.
    if (Array.isArray(request.body)) {
      refuse(reply, 400, 'batches are not supported: send one message in each request')
      return reply
    }
    // Waits of an agent must not keep the agent from stopping a run.
    if (agent.inFlight >= MAX_IN_FLIGHT && !isStop(request.body)) {
      void reply.header('retry-after', '1')
      refuse(reply, 429, `too many requests: at most ${MAX_IN_FLIGHT} at once`)
      return reply
    }
    reply.hijack()
    const gone = new AbortController()
    reply.raw.once('close', () => gone.abort())
    agent.inFlight++
    try {
      const authInfo = { token: '', clientId: agent.name, scopes: [] }
      const options = request.body === undefined ? { authInfo } : { authInfo, parsedBody: request.body }
      await answer(reply, await handler.fetch(webRequest(request, gone.signal), options))
    } catch (err) {
      if (!gone.signal.aborted)
        log.error(
          { err, agent: agent.name },
          'internal error in the control MCP server (a bug in Breakwater)',
        )
      reply.raw.destroy()
    } finally {
      agent.inFlight--
    }
  })
  return handler
}

function refuse(reply: FastifyReply, status: number, message: string): void {
  void reply
    .code(status)
    .type('application/json')
    .send(errorText(null, INVALID_REQUEST, message))
}

/** Whether a message calls `stop_run`. */
const isStop = (body: unknown): boolean =>
  isObject(body) && isObject(body.params) && body.method === 'tools/call' && body.params.name === 'stop_run'

/** Finds the agent of a bearer token. Compares with each token in constant time. */
function agentOf(authorization: string | undefined, agents: readonly Known[]): Known | undefined {
  const [, given] = /^bearer (.{1,1024})$/is.exec(authorization ?? '') ?? []
  if (given === undefined) return undefined
  const digest = createHash('sha256').update(given).digest()
  let found: Known | undefined
  for (const agent of agents) if (timingSafeEqual(digest, agent.digest)) found = agent
  return found
}

/** The request for web-style handlers, without its body, which is parsed already, and without the token. */
function webRequest({ raw, method }: FastifyRequest, signal: AbortSignal): Request {
  // The URL is fixed: the target of a request may be a whole URL, with credentials, that `Request` refuses.
  const headers = Object.entries(raw.headersDistinct).flatMap(([name, values = []]) =>
    name === 'authorization' ? [] : values.map((value): [string, string] => [name, value]),
  )
  return new Request('http://localhost/mcp', { method, headers, signal })
}

async function answer({ raw }: FastifyReply, { status, headers, body }: Response): Promise<void> {
  raw.writeHead(status, Object.fromEntries(headers))
  if (body === null) return void raw.end()
  raw.flushHeaders()
  await pipeline(Readable.fromWeb(body), raw)
}
