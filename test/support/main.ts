import { fileURLToPath } from 'node:url'

/** The packed program, for tests that start a process. */
export const main = fileURLToPath(new URL('../../dist/main.js', import.meta.url))
