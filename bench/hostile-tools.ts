/** Tools of the hostile server, named by what it does when they are called. */
export const misdeeds = [
  'json-crumbs',
  'sse-crumbs',
  'large-reply',
  'deep-reply',
  'many-keys',
  'ping-flood',
  'change-flood',
  'no-messages',
] as const
