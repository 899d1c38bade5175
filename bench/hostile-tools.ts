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
