/** The lists that a server offers, and how each of them is asked for. */
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

/** Where a tool, or a result of one, names its user interface by a URI: as the protocol's extension writes it, and as its predecessors do. */
export const uiPaths = [
  ['_meta', 'ui', 'resourceUri'],
  ['_meta', 'ui/resourceUri'],
  ['_meta', 'openai/outputTemplate'],
] as const

export type ListKind = keyof typeof kinds

export const listKinds = Object.keys(kinds) as readonly ListKind[]

/** The list that a method asks for. */
export function kindOfList(method: string): ListKind | undefined {
  return listKinds.find((kind) => kinds[kind].method === method)
}
