import { type Envelope, isObject, isRequestId } from './jsonrpc.ts'

/** The kinds of lists of a server, each with its names in the protocol. */
export const kinds = {
  tools: {
    method: 'tools/list',
    capability: 'tools',
    key: 'name',
    changed: 'notifications/tools/list_changed',
  },
  prompts: {
    method: 'prompts/list',
    capability: 'prompts',
    key: 'name',
    changed: 'notifications/prompts/list_changed',
  },
  resources: {
    method: 'resources/list',
    capability: 'resources',
    key: 'uri',
    changed: 'notifications/resources/list_changed',
  },
  resourceTemplates: {
    method: 'resources/templates/list',
    capability: 'resources',
    key: 'uriTemplate',
    changed: 'notifications/resources/list_changed',
  },
} as const

/** Paths of a user interface's URI in a tool or its result: the protocol's extension, then its predecessors. */
export const uiPaths = [
  ['_meta', 'ui', 'resourceUri'],
  ['_meta', 'ui/resourceUri'],
  ['_meta', 'openai/outputTemplate'],
] as const

export type ListKind = keyof typeof kinds

export const listKinds = Object.keys(kinds) as readonly ListKind[]

export function kindOfList(method: string): ListKind | undefined {
  return listKinds.find((kind) => kinds[kind].method === method)
}

/** The notifications of list changes, each with its key in a filter of `subscriptions/listen`. */
const filterKeys = new Map([
  ['notifications/tools/list_changed', 'toolsListChanged'],
  ['notifications/prompts/list_changed', 'promptsListChanged'],
  ['notifications/resources/list_changed', 'resourcesListChanged'],
] as const)

type FilterKey = typeof filterKeys extends Map<unknown, infer Key> ? Key : never

/** Returns the filter key for a list change; undefined for any other message. */
export function listChangeKey({ value }: Envelope): FilterKey | undefined {
  return value.id === undefined ? (filterKeys as Map<unknown, FilterKey>).get(value.method) : undefined
}

/** Whether a message only says that a list has changed: one such message can replace several. */
export function isListChange(message: Envelope): boolean {
  return listChangeKey(message) !== undefined
}

interface Type {
  readonly words: string
  is(value: unknown): boolean
}

const string: Type = { words: 'a string', is: (value) => typeof value === 'string' }
const token: Type = { words: 'a string or a number', is: isRequestId }
const object: Type = { words: 'an object', is: isObject }
/** Clients write `null` for an absent value, and servers accept `null`. */
const objectOrNull: Type = { words: 'an object', is: (value) => value === null || isObject(value) }

/** The required types of the parameters that the gateway reads; absent parameters are not checked. */
const types = {
  _meta: objectOrNull,
  arguments: objectOrNull,
  capabilities: object,
  clientInfo: object,
  cursor: string,
  level: string,
  name: string,
  protocolVersion: string,
  ref: object,
  task: object,
  taskId: string,
  uri: string,
} satisfies Readonly<Record<string, Type>>

type Param = keyof typeof types

const list: readonly Param[] = ['cursor']
const resource: readonly Param[] = ['uri']
const task: readonly Param[] = ['taskId']

/** The checked parameters of each method. A map instead of an object, because peers choose the method names. */
const paramsByMethod: ReadonlyMap<string, readonly Param[]> = new Map<string, readonly Param[]>([
  ['initialize', ['protocolVersion', 'capabilities', 'clientInfo']],
  ['tools/call', ['name', 'arguments', 'task']],
  ['prompts/get', ['name', 'arguments']],
  ['resources/read', resource],
  ['resources/subscribe', resource],
  ['resources/unsubscribe', resource],
  ['completion/complete', ['ref']],
  ['logging/setLevel', ['level']],
  ['tools/list', list],
  ['prompts/list', list],
  ['resources/list', list],
  ['resources/templates/list', list],
  ['tasks/list', list],
  ['tasks/get', task],
  ['tasks/result', task],
  ['tasks/update', task],
  ['tasks/cancel', task],
])

/**
 * Returns the fault in a request's parameters as an error message; undefined without a fault. Checks only types, and
 * whether a tool call names a tool: the server checks the rest.
 */
export function paramsFault(method: string, params: Readonly<Record<string, unknown>>): string | undefined {
  const wanted = paramsByMethod.get(method)
  if (wanted !== undefined) {
    for (const key of wanted) {
      const value = params[key]
      if (value !== undefined && !types[key].is(value)) return expected(key, types[key], value)
    }
    if (params.name === undefined && method === 'tools/call') return expected('name', string, undefined)
  }
  const meta = params._meta
  if (meta === undefined) return undefined
  if (!types._meta.is(meta)) return expected('_meta', types._meta, meta)
  const progressToken = isObject(meta) ? meta.progressToken : undefined
  if (progressToken === undefined || isRequestId(progressToken)) return undefined
  return expected('_meta.progressToken', token, progressToken)
}

/** Returns why a request's `inputResponses` are invalid: each response must be an object. Undefined if valid. */
export function answersFault(inputResponses: unknown): string | undefined {
  if (inputResponses === undefined) return undefined
  if (!isObject(inputResponses)) return expected('inputResponses', object, inputResponses)
  for (const [key, answer] of Object.entries(inputResponses))
    if (!isObject(answer))
      return expected(`inputResponses[${JSON.stringify(key.slice(0, 64))}]`, object, answer)
  return undefined
}

function expected(key: string, { words }: Type, value: unknown): string {
  return `Invalid params: ${key} must be ${words}, not ${kindOf(value)}`
}

function kindOf(value: unknown): string {
  if (value === undefined) return 'missing'
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'an array'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}
