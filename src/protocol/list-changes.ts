/** Notifications that say no more than that a list is another one now: of several, one says it all. */
export const listChanges: ReadonlySet<string> = new Set([
  'notifications/tools/list_changed',
  'notifications/prompts/list_changed',
  'notifications/resources/list_changed',
])
