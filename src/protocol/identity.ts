import { createRequire } from 'node:module'
import { LATEST_LEGACY } from './versions.ts'

/** The version in `package.json`. The package name resolves both in the sources and in every build. */
export const { version } = createRequire(import.meta.url)('breakwater/package.json') as { version: string }

/** The gateway's name in `initialize`, for agents and servers. */
export const implementation = { name: 'breakwater', title: 'Breakwater', version } as const

/**
 * The capabilities that the gateway claims when it asks a server for its lists. Many servers show some tools only to
 * clients with the matching capabilities. An agent without such a capability still sees these tools, but a call of such
 * a tool may fail.
 */
const capabilities = { roots: {}, sampling: {}, elicitation: { form: {}, url: {} } } as const

export const ownInitializeParams = {
  protocolVersion: LATEST_LEGACY,
  capabilities,
  clientInfo: implementation,
} as const
