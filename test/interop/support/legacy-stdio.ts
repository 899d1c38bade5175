import { createFixtureServer } from '../../fixtures/conformance/server.ts'
import { serveStdio } from '../../fixtures/contract/serve.ts'

/** The legacy fixture of the conformance suite, over standard input and output. */
await serveStdio(createFixtureServer)
