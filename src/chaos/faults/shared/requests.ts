/** All requests that travel to a server on an agent's behalf: a connection does not know a tool call from a list. */
export const requests: readonly string[] = [
  'tools/call',
  'tools/list',
  'prompts/list',
  'prompts/get',
  'resources/list',
  'resources/templates/list',
  'resources/read',
  'completion/complete',
]
