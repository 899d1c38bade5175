import { createRequire } from 'node:module'
import { LATEST_LEGACY } from './versions.ts'

/** The package's manifest, by its own name: found from the sources and from every build of them. */
export const { version } = createRequire(import.meta.url)('breakwater/package.json') as { version: string }

/** How the gateway introduces itself, to agents and to servers. */
export const implementation = { name: 'breakwater', title: 'Breakwater', version } as const

/**
 * The capabilities that the gateway claims when it asks a server for its lists. Many servers show some of their tools
 * only to clients that can do something for them. An agent's call shows whether the agent can.
 */
const capabilities = { roots: {}, sampling: {}, elicitation: { form: {}, url: {} } } as const

/** The `initialize` params of the gateway when it speaks for itself. */
export const ownInitializeParams = {
  protocolVersion: LATEST_LEGACY,
  capabilities,
  clientInfo: implementation,
} as const
