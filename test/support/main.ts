import { fileURLToPath } from 'node:url'

/** The program as it is packed, for tests that start it as a process. */
export const main = fileURLToPath(new URL('../../dist/main.js', import.meta.url))
