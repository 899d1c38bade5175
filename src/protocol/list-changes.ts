import type { Envelope } from './jsonrpc.ts'

/** The notifications that a list has changed, with the key by which a filter of `subscriptions/listen` admits each. */
const filterKeys = new Map([
  ['notifications/tools/list_changed', 'toolsListChanged'],
  ['notifications/prompts/list_changed', 'promptsListChanged'],
  ['notifications/resources/list_changed', 'resourcesListChanged'],
] as const)

type FilterKey = typeof filterKeys extends Map<unknown, infer Key> ? Key : never

/** Under which key a client asks to be told of a list change; undefined for a message that is none. */
export function listChangeKey({ value }: Envelope): FilterKey | undefined {
  return value.id === undefined ? (filterKeys as Map<unknown, FilterKey>).get(value.method) : undefined
}

/** Whether a message says no more than that a list is another one now: of several, one says it all. */
export function isListChange(message: Envelope): boolean {
  return listChangeKey(message) !== undefined
}
