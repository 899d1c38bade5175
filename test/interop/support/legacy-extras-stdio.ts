import { serveStdio } from '../../fixtures/contract/serve.ts'
import { createLegacyExtras, newFacts } from './legacy-extras.ts'

/** The server with everything of the legacy era, over standard input and output. */
await serveStdio(() => createLegacyExtras(newFacts()))
