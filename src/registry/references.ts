import { type Message, type Call, derive } from '../mesh/call.ts'
import { at, isObject, paramsOf } from '../protocol/jsonrpc.ts'
import {
  type Edit,
  edit,
  type JsonPath,
  locate,
  locateAll,
  spliceOne,
  replaceAt,
} from '../protocol/json-span.ts'
import { edited } from '../protocol/large-message.ts'
import { withEntry } from '../protocol/meta.ts'
import { RELATED_TASK } from '../protocol/mcp-task.ts'
import type { GatewayGeneration } from './generation.ts'
import { type ListKind, uiPaths } from '../protocol/lists.ts'
import type { KnownServer } from './known-server.ts'
import { faultOfName, type Names, type Resolved } from './names.ts'
import { forwardedWith } from '../upstreams/forwarded.ts'

/** How a reference is written: as `{server}{separator}{name}`, or as a URI. */
type Form = 'name' | 'uri'

/** The path of a reference in a message. */
type Place = readonly [JsonPath, Form]

/** Paths of the reference in each request; the first path with a string counts. */
const requests = placesByMethod({
  'tools/call': [[['params', 'name'], 'name']],
  'prompts/get': [[['params', 'name'], 'name']],
  'resources/read': [[['params', 'uri'], 'uri']],
  'resources/subscribe': [[['params', 'uri'], 'uri']],
  'resources/unsubscribe': [[['params', 'uri'], 'uri']],
  'completion/complete': [
    [['params', 'ref', 'name'], 'name'],
    [['params', 'ref', 'uri'], 'uri'],
  ],
  'tasks/get': [[['params', 'taskId'], 'name']],
  'tasks/result': [[['params', 'taskId'], 'name']],
  'tasks/update': [[['params', 'taskId'], 'name']],
  'tasks/cancel': [[['params', 'taskId'], 'name']],
})

/** Paths of references in a server's notifications. */
const notifications = placesByMethod({
  'notifications/resources/updated': [[['params', 'uri'], 'uri']],
  'notifications/tasks/status': [[['params', 'taskId'], 'name']],
})

/** Returns a map instead of an object: methods come from outside, and an object has inherited members. */
function placesByMethod(
  places: Readonly<Record<string, readonly Place[]>>,
): ReadonlyMap<unknown, readonly Place[]> {
  return new Map(Object.entries(places))
}

/** A request in its server's own terms. */
export interface Routed extends Resolved {
  readonly message: Message
}

/** Whether requests of this method name their server. */
export function namesServer(method: string): boolean {
  return requests.has(method)
}

/** The list kind of each request's reference, by method. Tools are not included, because `allows` checks tools. */
const kindsByMethod: ReadonlyMap<unknown, ListKind> = new Map([
  ['prompts/get', 'prompts'],
  ['resources/read', 'resources'],
  ['resources/subscribe', 'resources'],
  ['resources/unsubscribe', 'resources'],
  ['completion/complete', 'resourceTemplates'],
])

/** Whether a request, in its server's own terms, refers to an entry hidden because of its name. */
export function isAboutUnlisted(method: string, { value }: Message): boolean {
  const kind = kindsByMethod.get(method)
  if (kind === undefined) return false
  return (requests.get(method) ?? []).some(([path]) => {
    const name = at(value, path)
    return typeof name === 'string' && faultOfName(kind, name) !== undefined
  })
}

/** Returns the server of a request, and the request in the server's own terms. Undefined without a valid reference. */
export function routeRequest(
  method: string,
  message: Message,
  {
    names,
    servers,
  }: Pick<GatewayGeneration, 'names'> & {
    readonly servers: ReadonlyMap<string, Pick<KnownServer, 'toolShownAs'>>
  },
): Routed | undefined {
  for (const [path, form] of requests.get(method) ?? []) {
    const exposed = at(message.value, path)
    if (typeof exposed !== 'string') continue
    const found = form === 'uri' ? names.resolveUri(exposed) : names.resolve(exposed)
    const span = locate(message.text, path)
    if (found === undefined || span === undefined) return undefined
    const tool = method === 'tools/call' ? servers.get(found.server)?.toolShownAs(found.name) : undefined
    const resolved = tool === undefined ? found : { ...found, name: tool }
    const text = spliceOne(message.text, span, JSON.stringify(resolved.name))
    return {
      ...resolved,
      message: { text, value: replaced(message.value, path, resolved.name) as Message['value'] },
    }
  }
  return undefined
}

/** Returns a server's notification or request in the terms of the aggregated endpoint. */
export function exposeMessage(server: string, message: Message, names: Names): Message {
  const named = notifications.get(message.value.method)
  if (!isOfTask(message.value.params))
    return named === undefined ? message : expose(server, message, named, names)
  return expose(server, message, [...(named ?? []), relatedTaskIn('params')], names)
}

/** Returns an agent's reply to a server's request in the server's own terms: the reverse of `exposeMessage`. */
export function restoreMessage(server: string, message: Message, names: Names): Message {
  const { result, params } = message.value
  const member = isOfTask(result) ? 'result' : isOfTask(params) ? 'params' : undefined
  if (member === undefined) return message
  const [path] = relatedTaskIn(member)
  const exposed = at(message.value, path)
  const found = typeof exposed === 'string' ? names.resolve(exposed) : undefined
  if (found?.server !== server) return message
  return edited(message, (text) => {
    const span = locate(text, path)
    return span === undefined ? [] : [edit(span, JSON.stringify(found.name))]
  })
}

/** Returns a server's response in the terms of the aggregated endpoint. */
export function exposeResponse<M extends Message>(server: string, message: M, names: Names): M {
  const { result } = message.value
  if (!isObject(result) || !mayRefer(result)) return message
  return expose(server, message, [...placesIn(result, ['result'])], names)
}

/** A quick check to skip most results: plain text contains no references. */
function mayRefer(result: Readonly<Record<string, unknown>>): boolean {
  if (['taskId', 'task', '_meta', 'contents', 'messages'].some((key) => key in result)) return true
  const { content } = result
  return Array.isArray(content) && content.some((block) => !isObject(block) || block.type !== 'text')
}

function expose<M extends Message>(server: string, message: M, places: readonly Place[], names: Names): M {
  const held = places.flatMap(([path, form]) => {
    const name = at(message.value, path)
    if (typeof name !== 'string') return []
    return [{ path, exposed: form === 'uri' ? names.exposeUri(server, name) : names.expose(server, name) }]
  })
  if (held.length === 0) return message
  const paths = held.map(({ path }) => path)
  return edited(message, (text) => {
    const spans = locateAll(text, paths)
    return held.flatMap(({ exposed }, index): Edit[] => {
      const span = spans[index]
      return span === undefined ? [] : [edit(span, JSON.stringify(exposed))]
    })
  })
}

/** Whether params or a result name their task. */
function isOfTask(holder: unknown): boolean {
  return isObject(holder) && isObject(holder._meta) && RELATED_TASK in holder._meta
}

const relatedTaskIn = (...path: JsonPath): Place => [[...path, '_meta', RELATED_TASK, 'taskId'], 'name']

/** Yields every reference to a resource or task in a result. */
function* placesIn(result: Readonly<Record<string, unknown>>, path: JsonPath): Generator<Place> {
  if (typeof result.taskId === 'string') yield [[...path, 'taskId'], 'name']
  if (isObject(result.task)) yield [[...path, 'task', 'taskId'], 'name']
  if (isOfTask(result)) yield relatedTaskIn(...path)
  if ('_meta' in result) for (const ui of uiPaths) yield [[...path, ...ui], 'uri']
  yield* blocks(result.content, [...path, 'content'])
  if (Array.isArray(result.contents)) {
    for (const index of result.contents.keys()) yield [[...path, 'contents', index, 'uri'], 'uri']
  }
  if (!Array.isArray(result.messages)) return
  for (const [index, message] of result.messages.entries()) {
    if (isObject(message)) yield* block(message.content, [...path, 'messages', index, 'content'])
  }
}

function* blocks(content: unknown, path: JsonPath): Generator<Place> {
  if (!Array.isArray(content)) return
  for (const [index, item] of content.entries()) yield* block(item, [...path, index])
}

function* block(item: unknown, path: JsonPath): Generator<Place> {
  if (!isObject(item)) return
  if (item.type === 'resource_link') yield [[...path, 'uri'], 'uri']
  if (item.type === 'resource') yield [[...path, 'resource', 'uri'], 'uri']
}

/** Returns a copy with `by` at `path`, sharing the rest with the original. `depth`: finished steps of `path`. */
function replaced(value: unknown, path: JsonPath, by: unknown, depth = 0): unknown {
  const step = path[depth]
  if (step === undefined || !isObject(value)) return by
  return withEntry(value, String(step), replaced(value[step], path, by, depth + 1))
}

/** Returns a tool call rewritten for another tool, with headers allowed by its server. Undefined if not allowed. */
export function readdress(call: Call, server: KnownServer | undefined, tool: string): Call | undefined {
  if (server === undefined || !server.allows(tool)) return undefined
  const { text, value } = call.message
  const message = {
    text: replaceAt(text, ['params', 'name'], tool),
    value: { ...value, params: { ...paramsOf(value), name: tool } },
  }
  const { config } = server
  const headers =
    config.type === 'stdio' ? undefined : forwardedWith(config.forwardHeaders, call.inbound, call.caller)
  return derive(call, { server: server.name, tool, message, headers, replica: undefined })
}
