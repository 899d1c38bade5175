import { type Call, type Caller, type Message, newRecord, type Outcome } from '../mesh/call.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import { askedLimitMs } from '../policies/deadline.ts'
import { implementation } from '../protocol/identity.ts'
import { parseExactly } from '../protocol/json-parse.ts'
import { elements, locate, replaceAt } from '../protocol/json-span.ts'
import {
  errorText,
  INVALID_PARAMS,
  isObject,
  METHOD_NOT_FOUND,
  paramsOf,
  type RequestId,
  resultText,
} from '../protocol/jsonrpc.ts'
import { isListChange, kindOfList, kinds, type ListKind } from '../protocol/lists.ts'
import { entryOf } from '../registry/catalog.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { listSlices, type ListSlice, ListWaits, pageOf } from '../registry/listing.ts'
import { faultOfName } from '../registry/names.ts'
import {
  exposeMessage,
  exposeResponse,
  isAboutUnlisted,
  namesServer,
  type Routed,
  restoreMessage,
  routeRequest,
} from '../registry/references.ts'
import type { Server } from '../registry/server.ts'
import { callTo, type Endpoint, type McpRequest, type Welcome } from './endpoint.ts'
import { withPartial, type Manner, onWire, respond, type Response } from './respond.ts'
import { ownResult } from './own-answer.ts'
import { firstOf } from '../units/numbered.ts'

/** The capabilities of the endpoint for all servers; they do not depend on the servers. */
const capabilities = {
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { listChanged: true, subscribe: true },
  completions: {},
  logging: {},
  tasks: { cancel: {}, requests: { tools: { call: {} } } },
}

/**
 * Time before an agent's deadline that is reserved for sending the answer, in milliseconds; at most half of the
 * deadline.
 */
const RESERVE_MS = 50

/** Longest instructions of a server that agents get, in characters. */
const INSTRUCTIONS = 4_000

/** The endpoint for all servers: each name includes its server's name, and lists come from the catalogs. */
export class AggregateEndpoint implements Endpoint {
  readonly server = undefined
  readonly #clock: Clock
  readonly #waits: ListWaits

  constructor(clock: Clock) {
    this.#clock = clock
    this.#waits = new ListWaits(clock)
  }

  welcome({ servers }: GatewayGeneration, { era }: Caller, version: string): Promise<Welcome> {
    const instructions = [...servers.values()].flatMap(instructionsOf).join('\n\n')
    const extensions = mergedExtensions(
      [...servers.values()].map((server) => server.initializeResultFor(era)?.value.capabilities),
    )
    const offered = extensions === undefined ? capabilities : { ...capabilities, extensions }
    const result = { protocolVersion: version, capabilities: offered, serverInfo: implementation }
    return Promise.resolve({
      text: JSON.stringify(instructions === '' ? result : { ...result, instructions }),
    })
  }

  request(generation: GatewayGeneration, request: McpRequest): Promise<Response> {
    const method = request.message.value.method as string
    const kind = kindOfList(method)
    if (kind !== undefined) return this.#list(generation, kind, request)
    if (method === 'logging/setLevel') return this.#toAll(generation, 'logging', request)
    if (namesServer(method)) return this.#toOne(generation, method, request)
    return Promise.resolve(
      rpcError(request.id, METHOD_NOT_FOUND, `Method not found: ${method.slice(0, 200)}`),
    )
  }

  notify({ servers }: GatewayGeneration, caller: Caller, message: Message): void {
    for (const { upstreamSessions } of servers.values()) upstreamSessions.notify(caller, message)
  }

  /** Drops list changes: they are announced later, when the catalog has the new list. */
  inbound({ names }: GatewayGeneration, server: string, message: Message): Message | undefined {
    return isListChange(message) ? undefined : exposeMessage(server, message, names)
  }

  outbound({ names }: GatewayGeneration, server: string, message: Message): Message {
    return restoreMessage(server, message, names)
  }

  async #list(generation: GatewayGeneration, kind: ListKind, request: McpRequest): Promise<Response> {
    const { id, message, caller, headers, signal, record } = request
    const { cursor } = paramsOf(message.value)
    const { servers, names, config } = generation
    // With a short deadline, the agent gets the entries known at the deadline, and the names of the servers that are
    // missing.
    const askedMs = askedLimitMs({ inbound: headers, message }) ?? Infinity
    const leftMs = record.startedAt + askedMs - this.#clock.now() - Math.min(RESERVE_MS, askedMs / 2)
    const { listTimeout } = config.gateway
    const limitMs = Math.max(0, Math.min(listTimeout, leftMs))
    const legacy = caller.era === 'legacy'
    const era = legacy ? 'legacy' : 'modern'
    await this.#waits.settled(servers.values(), limitMs, listTimeout, { signal, era })
    const isCursor = cursor === undefined || typeof cursor === 'string'
    const slices = isCursor ? listSlices(kind, cursor, servers, names, { legacy }) : undefined
    if (slices === undefined) return rpcError(id, INVALID_PARAMS, 'Invalid cursor')
    const { clientFaults } = generation
    const isFaulted = slices.some(({ server }) => clientFaults(server, kinds[kind].method) !== undefined)
    const shown = isFaulted ? await this.#faulted(generation, kind, slices, request) : slices
    if ('text' in shown) return shown
    return { text: resultText(id, pageOf(kind, shown, servers, names)), status: 200 }
  }

  /**
   * Applies client-side faults to a page of a list. Faults treat each server's part of the page as a separate list. A
   * part that becomes an error or a broken connection replaces the whole page.
   */
  async #faulted(
    { servers, clientFaults }: GatewayGeneration,
    kind: ListKind,
    slices: readonly ListSlice[],
    request: McpRequest,
  ): Promise<readonly ListSlice[] | Response> {
    const shown = await Promise.all(
      slices.map(async (slice): Promise<ListSlice | Response> => {
        const server = servers.get(slice.server)
        const layer = clientFaults(slice.server, kinds[kind].method)
        if (server === undefined || layer === undefined) return slice
        const record = newRecord(this.#clock.now())
        const call = { ...callTo(server, asked(slice, request.message), request), record }
        const whole = answerOf(kind, slice, call.id)
        const outcome = await layer(() => Promise.resolve(whole))(call)
        return outcome === whole ? slice : (sliceIn(kind, slice, outcome) ?? respond(call.id, outcome, call))
      }),
    )
    return shown.find((part) => 'text' in part) ?? (shown as ListSlice[])
  }

  #toOne(generation: GatewayGeneration, method: string, request: McpRequest): Promise<Response> {
    const routed = routeRequest(method, request.message, generation)
    const server = routed && generation.servers.get(routed.server)
    if (routed === undefined || server === undefined || isHidden(method, request.message, routed, server)) {
      return Promise.resolve(unknown(method, request, generation))
    }
    const call = callTo(server, routed.message, request)
    return generation
      .serviceFor(call)(call)
      .then((outcome) => {
        if (outcome.kind !== 'answered') {
          return { ...respond(call.id, outcome, call, mannerOf(server, call, generation)), status: 200 }
        }
        const exposed = exposeResponse(server.name, withPartial(outcome), generation.names)
        // Copies the response only if its status changes: a copy of a large message would decode its whole text.
        const response = exposed.status === 200 ? exposed : { ...exposed, status: 200 }
        return onWire(response, outcome, call.record)
      })
  }

  /** Sends a request to every server with the capability; the agent gets one empty result. */
  async #toAll(generation: GatewayGeneration, capability: string, request: McpRequest): Promise<Response> {
    const able = [...generation.servers.values()].filter((server) =>
      offers(server, request.caller, capability),
    )
    const calls = able.map((server) => callTo(server, request.message, request))
    await Promise.all(
      calls.map((call) => generation.mesh.serviceFor(call.server, call.method, undefined)(call)),
    )
    return { text: resultText(request.id, '{}'), status: 200 }
  }
}

/** Returns the request for a server's part of a page, with the cursor of that part. */
function asked({ cursor }: ListSlice, { value }: Message): Message {
  const params = { ...paramsOf(value), cursor }
  return { text: JSON.stringify({ ...value, params }), value: { ...value, params } }
}

/** Returns a part of a page as an outcome, as if its server had answered. */
function answerOf(kind: ListKind, { entries, nextCursor }: ListSlice, id: RequestId): Outcome {
  const list = entries.map(({ text }) => parseExactly(text))
  const result = { [kind]: list, ...(nextCursor === undefined ? {} : { nextCursor }) }
  return ownResult(id, JSON.stringify(result))
}

/** Returns the part of a page that an outcome contains; undefined for an outcome without a list. */
function sliceIn(kind: ListKind, { server, cursor }: ListSlice, outcome: Outcome): ListSlice | undefined {
  if (outcome.kind !== 'answered' || outcome.wire !== undefined) return undefined
  const { result } = outcome.result.value
  if (!isObject(result) || !Array.isArray(result[kind])) return undefined
  const { nextCursor, ttlMs } = result
  return {
    server,
    cursor,
    entries: result[kind].flatMap((entry: unknown) => entryOf(kind, JSON.stringify(entry)) ?? []),
    nextCursor: typeof nextCursor === 'string' ? nextCursor : undefined,
    ...(typeof ttlMs === 'number' ? { ttlMs } : {}),
  }
}

/**
 * True when a request names an item hidden from agents. `name` is the name at the server; `own` is the server's
 * message, and `message` the agent's.
 */
function isHidden(method: string, message: Message, { name, message: own }: Routed, server: Server): boolean {
  if (method === 'tools/call') return !server.allows(name)
  return isAboutUnlisted(method, own) || isAboutUnlisted(method, message)
}

/** True when a server offers a capability. A server may offer different capabilities in each era of the protocol. */
function offers(server: Server, caller: Caller, capability: string): boolean {
  const era = caller.era
  const initializeResult =
    server.upstreamSessions.current(caller)?.upstreamSession.initializeResult ??
    server.initializeResultFor(era)
  const offered = initializeResult?.value.capabilities
  return server.state === 'up' && isObject(offered) && capability in offered
}

/** Most extensions that agents get, and longest settings of an extension, in characters of JSON. */
const MOST_EXTENSIONS = 64
const EXTENSION_SETTINGS = 4_000

/** Returns the extensions of all servers, in server order; undefined without extensions. */
function mergedExtensions(offers: readonly unknown[]): Record<string, unknown> | undefined {
  const merged = new Map<string, Record<string, unknown>>()
  for (const capabilities of offers) {
    const extensions = isObject(capabilities) ? capabilities.extensions : undefined
    for (const [name, settings] of isObject(extensions) ? Object.entries(extensions) : []) {
      const before = merged.get(name)
      if (!isObject(settings) || (before === undefined && merged.size >= MOST_EXTENSIONS)) continue
      const together = before === undefined ? settings : mergedSettings(before, settings)
      if (JSON.stringify([name, together]).length <= EXTENSION_SETTINGS) merged.set(name, together)
    }
  }
  return merged.size === 0 ? undefined : Object.fromEntries(merged)
}

/** Merges two servers' settings of an extension: joins lists; takes other values from the first server. */
function mergedSettings(
  first: Readonly<Record<string, unknown>>,
  second: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const merged = new Map(Object.entries(first))
  for (const [key, value] of Object.entries(second)) {
    const before = merged.get(key)
    if (before === undefined) merged.set(key, value)
    else if (Array.isArray(before) && Array.isArray(value)) {
      const known = new Set(before.map((item) => JSON.stringify(item)))
      merged.set(key, [
        ...(before as unknown[]),
        ...(value as unknown[]).filter((item) => !known.has(JSON.stringify(item))),
      ])
    }
  }
  return Object.fromEntries(merged)
}

function instructionsOf({ name, initializeResult }: Server): string[] {
  const instructions = initializeResult?.value.instructions
  return typeof instructions === 'string' ? [`# ${name}\n${instructions.slice(0, INSTRUCTIONS)}`] : []
}

/** Returns the protocol's error for an unknown tool, prompt or resource. */
function unknown(method: string, { id, message }: McpRequest, { servers }: GatewayGeneration): Response {
  const { name, uri, taskId } = paramsOf(message.value)
  const named = [name, uri, taskId].find((value) => typeof value === 'string')
  const what = named?.slice(0, 200) ?? 'it has no name'
  const subject = method === 'tools/call' ? 'tool' : method === 'prompts/get' ? 'prompt' : 'reference'
  const known = firstOf([...servers.keys()])
  return rpcError(id, INVALID_PARAMS, `Unknown ${subject}: ${what} (servers: ${known})`)
}

function rpcError(id: RequestId, code: number, message: string): Response {
  return { text: errorText(id, code, message), status: 200 }
}

/** The endpoint of one server: names stay unchanged, and every message is passed on. */
export class ServerEndpoint implements Endpoint {
  readonly server: string

  constructor(server: string) {
    this.server = server
  }

  async welcome(
    generation: GatewayGeneration,
    caller: Caller,
    version: string,
    limitMs?: Millis,
  ): Promise<Welcome> {
    const server = generation.servers.get(this.server)
    // A reload may remove the server while a fault delays the handshake.
    if (server === undefined)
      return { error: gatewayError('upstream_unavailable', `server ${this.server} has left the config`) }
    try {
      const { upstreamSession } = await server.converse(caller, limitMs)
      const { text, value } = upstreamSession.initializeResult
      const { protocolVersion: own } = value
      if (typeof own !== 'string' || own === version) return { text }
      return own < version ? { text, version: own } : { text: replaceAt(text, ['protocolVersion'], version) }
    } catch (error) {
      return { error: error as GatewayError }
    }
  }

  request(generation: GatewayGeneration, request: McpRequest): Promise<Response> {
    const server = this.#find(generation)
    const call = callTo(server, request.message, request)
    const { method, tool } = call
    if (tool !== undefined && !server.allows(tool)) {
      return Promise.resolve({
        text: errorText(call.id, INVALID_PARAMS, `Unknown tool: ${tool.slice(0, 200)}`),
        status: 200,
      })
    }
    if (isAboutUnlisted(method, call.message)) {
      const subject = method === 'prompts/get' ? 'prompt' : 'reference'
      return Promise.resolve({ text: errorText(call.id, INVALID_PARAMS, `Unknown ${subject}`), status: 200 })
    }
    return generation
      .serviceFor(call)(call)
      .then((outcome) => {
        const response = respond(call.id, outcome, call, mannerOf(server, call, generation))
        const kind = outcome.kind === 'answered' ? kindOfList(method) : undefined
        if (kind === undefined || outcome.kind !== 'answered') return response
        return onlyAllowed(server, kind, response, outcome.result.value)
      })
  }

  notify(generation: GatewayGeneration, caller: Caller, message: Message): void {
    // A removed server gets no notifications, even while it has calls in progress.
    generation.servers.get(this.server)?.upstreamSessions.notify(caller, message)
  }

  inbound(_: GatewayGeneration, __: string, message: Message): Message {
    return message
  }

  outbound(_: GatewayGeneration, __: string, message: Message): Message {
    return message
  }

  #find(generation: GatewayGeneration): Server {
    const server = generation.servers.get(this.server)
    if (server === undefined) throw new Error(`server ${this.server} left the config while it was in use`)
    return server
  }
}

/** Returns how an agent gets an error of its call. */
function mannerOf({ config }: Server, call: Call, { mesh }: GatewayGeneration): Manner {
  return { deliver: config.deliver, effectOf: () => mesh.effectOf(call) }
}

/** Returns a list without the entries hidden from agents; the unchanged response when no entry is hidden. */
function onlyAllowed(server: Server, kind: ListKind, response: Response, value: Message['value']): Response {
  const list = isObject(value.result) ? value.result[kind] : undefined
  if (!Array.isArray(list)) return response
  const allowed = list.map((entry: unknown) => {
    const name = isObject(entry) ? entry[kinds[kind].key] : undefined
    if (typeof name !== 'string') return false
    return kind === 'tools' ? server.allows(name) : faultOfName(kind, name) === undefined
  })
  const span = locate(response.text, ['result', kind])
  if (span === undefined || allowed.every(Boolean)) return response
  const kept = [...elements(response.text, span.start)]
    .filter((_, index) => allowed[index])
    .map(({ start, end }) => response.text.slice(start, end))
  return {
    ...response,
    text: `${response.text.slice(0, span.start)}[${kept.join()}]${response.text.slice(span.end)}`,
  }
}
