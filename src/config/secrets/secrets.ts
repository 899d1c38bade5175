import { z } from 'zod'

/**
 * The parts of a value that nobody may see. `text`: all text in the value; `url`: the credentials in a URL;
 * `args`: the words of a command line that look like secrets.
 */
export type Secrecy = 'text' | 'url' | 'args'

/** Registers the schemas that read secrets. Errors and `redact` both ask this registry, so that no place is listed twice. */
export const secrets = z.registry<{ secrecy: Secrecy }>()
