import { isPlainMap } from '../../config/schema/plain-map.ts'
import { SERVER_PLACEHOLDER } from './library.ts'

/** A fault as the runtime API takes it. */
export interface Aimed {
  /** Servers, as a glob. */
  readonly target: string
  readonly config: Readonly<Record<string, unknown>>
}

export interface Aim {
  /** Which servers are hit: a glob. */
  readonly server: string
  /** Whether it may hit tools that are not known to be read-only, whatever the scenario says. */
  readonly allowWrites: boolean
}

/**
 * Aims a fault of a scenario: its servers are told beside it (those of the run, unless it names its own), and its name
 * and time are those of the run.
 */
export function aimed(fault: Readonly<Record<string, unknown>>, { server, allowWrites }: Aim): Aimed {
  const { name: _, ttl: __, match: written, ...rest } = fault
  const { server: own = SERVER_PLACEHOLDER, ...match } = isPlainMap(written) ? written : {}
  const config = {
    ...rest,
    ...(Object.keys(match).length > 0 && { match }),
    ...(allowWrites && { allowWrites }),
  }
  return { target: typeof own === 'string' && own !== SERVER_PLACEHOLDER ? own : server, config }
}
