import type { Caller, Message } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import { askedLimitMs } from '../policies/deadline/asked.ts'
import { implementation } from '../protocol/identity.ts'
import {
  errorText,
  INVALID_PARAMS,
  isObject,
  METHOD_NOT_FOUND,
  paramsOf,
  type RequestId,
  resultText,
} from '../protocol/jsonrpc.ts'
import { isListChange } from '../protocol/list-changes.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { kindOfList, type ListKind } from '../registry/kinds.ts'
import { listPage, settled } from '../registry/listing.ts'
import {
  exposeNotification,
  exposeResponse,
  isAboutUnlisted,
  namesServer,
  type Routed,
  routeRequest,
} from '../registry/references.ts'
import type { Server } from '../registry/server.ts'
import { callTo, type Front, type Inquiry, type Welcome } from './front.ts'
import { withPartial } from './partial.ts'
import { onWire, respond, type Response } from './respond.ts'

/** What the aggregate can do, whatever servers come and go. */
const capabilities = {
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { listChanged: true, subscribe: true },
  completions: {},
  logging: {},
  tasks: { cancel: {}, requests: { tools: { call: {} } } },
}

/** Kept back of an agent's deadline for the way home, in milliseconds; at most half of it. */
const RESERVE_MS = 50

/** Longest instructions of one server that are passed on, in characters. */
const INSTRUCTIONS = 4_000

/** All servers under one roof: names carry their server, lists come from the catalogs. */
export class AggregateFront implements Front {
  readonly server = undefined
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  welcome({ servers }: GatewayGeneration, _: Caller, version: string): Promise<Welcome> {
    const instructions = [...servers.values()].flatMap(instructionsOf).join('\n\n')
    const result = { protocolVersion: version, capabilities, serverInfo: implementation }
    return Promise.resolve({
      text: JSON.stringify(instructions === '' ? result : { ...result, instructions }),
    })
  }

  request(generation: GatewayGeneration, inquiry: Inquiry): Promise<Response> {
    const method = inquiry.message.value.method as string
    const kind = kindOfList(method)
    if (kind !== undefined) return this.#list(generation, kind, inquiry)
    if (method === 'logging/setLevel') return this.#toAll(generation, 'logging', inquiry)
    if (namesServer(method)) return this.#toOne(generation, method, inquiry)
    return Promise.resolve(
      rpcError(inquiry.id, METHOD_NOT_FOUND, `Method not found: ${method.slice(0, 200)}`),
    )
  }

  notify({ servers }: GatewayGeneration, caller: Caller, message: Message): void {
    for (const server of servers.values())
      for (const link of server.links.all(caller)) link.post(message.text).catch(ignore)
  }

  /** Changes of lists are told when the catalog has taken them in. */
  inbound({ names }: GatewayGeneration, server: string, message: Message): Message | undefined {
    return isListChange(message) ? undefined : exposeNotification(server, message, names)
  }

  async #list(generation: GatewayGeneration, kind: ListKind, inquiry: Inquiry): Promise<Response> {
    const { id, message, caller, headers, signal, record } = inquiry
    const { cursor } = paramsOf(message.value)
    const { servers, names, config } = generation
    // Who is in a hurry gets what is known by then, with the names of the servers that are missing.
    const askedMs = askedLimitMs({ inbound: headers, message }) ?? Infinity
    const leftMs = record.startedAt + askedMs - this.#clock.now() - Math.min(RESERVE_MS, askedMs / 2)
    const limitMs = Math.max(0, Math.min(config.gateway.listTimeout, leftMs))
    const legacy = !caller.takesInputRequired
    await settled(servers.values(), this.#clock, limitMs, { signal, era: legacy ? 'legacy' : 'modern' })
    const isCursor = cursor === undefined || typeof cursor === 'string'
    const page = isCursor ? listPage(kind, cursor, servers, names, { legacy }) : undefined
    if (page === undefined) return rpcError(id, INVALID_PARAMS, 'Invalid cursor')
    return { text: resultText(id, page), status: 200 }
  }

  #toOne(generation: GatewayGeneration, method: string, inquiry: Inquiry): Promise<Response> {
    const routed = routeRequest(method, inquiry.message, generation.names)
    const server = routed && generation.servers.get(routed.server)
    if (
      routed === undefined ||
      server === undefined ||
      isHidden(method, inquiry.message, routed, server, generation)
    ) {
      return Promise.resolve(unknown(method, inquiry, generation))
    }
    const call = callTo(server, routed.message, inquiry)
    const service = generation.mesh.serviceFor(server.name, method, call.tool)
    return service(call).then((outcome) => {
      if (outcome.kind !== 'answered') {
        return { ...respond(call.id, outcome, call, server.config.deliver), status: 200 }
      }
      const exposed = exposeResponse(server.name, withPartial(outcome), generation.names)
      return onWire({ ...exposed, status: 200 }, outcome)
    })
  }

  /** Sends a request to every server that can take it; the agent hears one empty result. */
  async #toAll(generation: GatewayGeneration, capability: string, inquiry: Inquiry): Promise<Response> {
    const able = [...generation.servers.values()].filter((server) =>
      offers(server, inquiry.caller, capability),
    )
    const calls = able.map((server) => callTo(server, inquiry.message, inquiry))
    await Promise.all(
      calls.map((call) => generation.mesh.serviceFor(call.server, call.method, undefined)(call)),
    )
    return { text: resultText(inquiry.id, '{}'), status: 200 }
  }
}

/** Whether a request is about something that agents may not see: of this server, or under its name on this endpoint. */
function isHidden(
  method: string,
  message: Message,
  { name, message: own }: Routed,
  server: Server,
  { names }: GatewayGeneration,
): boolean {
  if (method === 'tools/call')
    return !server.allows(name) || names.faultOf('tools', server.name, name) !== undefined
  return isAboutUnlisted(method, own) || isAboutUnlisted(method, message)
}

/** What a server offers may depend on the era in which it is spoken to for a caller. */
function offers(server: Server, caller: Caller, capability: string): boolean {
  const era = caller.takesInputRequired ? 'modern' : 'legacy'
  const greeting = server.links.current(caller)?.link.greeting ?? server.greetingFor(era)
  const offered = greeting?.value.capabilities
  return server.state === 'up' && isObject(offered) && capability in offered
}

function instructionsOf({ name, greeting }: Server): string[] {
  const instructions = greeting?.value.instructions
  return typeof instructions === 'string' ? [`# ${name}\n${instructions.slice(0, INSTRUCTIONS)}`] : []
}

/** What the protocol asks for when there is no such tool, prompt or resource. */
function unknown(method: string, { id, message }: Inquiry, { servers }: GatewayGeneration): Response {
  const { name, uri, taskId } = paramsOf(message.value)
  const named = [name, uri, taskId].find((value) => typeof value === 'string')
  const what = named?.slice(0, 200) ?? 'it has no name'
  const subject = method === 'tools/call' ? 'tool' : method === 'prompts/get' ? 'prompt' : 'reference'
  const known = [...servers.keys()].slice(0, 20).join(', ')
  return rpcError(id, INVALID_PARAMS, `Unknown ${subject}: ${what} (servers: ${known})`)
}

function rpcError(id: RequestId, code: number, message: string): Response {
  return { text: errorText(id, code, message), status: 200 }
}

/** A notification has no answer, so nobody could be told of its loss. */
function ignore(): void {}
