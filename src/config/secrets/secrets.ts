import { z } from 'zod'

/**
 * The secret parts of a value. `text`: all text in the value; `url`: the credentials in a URL; `args`: secret-looking
 * words of a command line.
 */
export type Secrecy = 'text' | 'url' | 'args'

/** Registers the schemas for secrets. Errors and `redact` share this registry, so no place is listed twice. */
export const secrets = z.registry<{ secrecy: Secrecy }>()
