import { serveStdio } from '../../fixtures/contract/serve.ts'
import { createLegacyExtras, newFacts } from './legacy-extras.ts'

/** The full legacy server over stdio. */
await serveStdio(() => createLegacyExtras(newFacts()))
