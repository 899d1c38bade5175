import { z } from 'zod'

/**
 * The secret parts of a value. `text`: all text in the value; `url`: the credentials in a URL; `args`: secret-looking
 * words of a command line.
 */
export type Secrecy = 'text' | 'url' | 'args'

/** Registry of the schemas whose values are secret. Error messages and `redact` both use it. */
export const secrets = z.registry<{ secrecy: Secrecy }>()
