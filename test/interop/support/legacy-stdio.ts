import { createFixtureServer } from '../../fixtures/conformance/server.ts'
import { serveStdio } from '../../fixtures/contract/serve.ts'

/** The conformance suite's legacy fixture over stdio. */
await serveStdio(createFixtureServer)
