import { z } from 'zod'

/**
 * What of a value nobody may see: all text in it (`text`), the credentials in a URL (`url`),
 * or the words of a command line that look like secrets (`args`).
 */
export type Secrecy = 'text' | 'url' | 'args'

/** Which schemas read secrets. Errors and `redact` both ask here, so that no place is listed twice. */
export const secrets = z.registry<{ secrecy: Secrecy }>()
