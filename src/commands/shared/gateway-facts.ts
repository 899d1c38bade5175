import { z } from 'zod'
import { hashOf } from '../../experiments/guarded/spec.ts'
import { UnusableInput } from './arguments.ts'
import type { Control } from './control.ts'

/** Facts about a running gateway, for the summary of a run. */
export interface GatewayFacts {
  readonly environment: string
  /** Hashes of the config in force and of its policies. */
  readonly config: string
  readonly policies: string
  /** Returns protocol eras and transports of servers, such as `modern` and `stdio`. */
  readonly linksOf: (servers: readonly string[]) => { readonly era: string; readonly transport: string }
}

/** The environment of a gateway whose config names none. */
const PRODUCTION = 'production'

const configured = z.object({
  hash: z.string(),
  config: z.object({
    gateway: z.object({ environment: z.string().default(PRODUCTION) }),
    policies: z.unknown(),
  }),
})

const listed = z.array(
  z.object({
    name: z.string(),
    type: z.string(),
    era: z.array(z.record(z.string(), z.unknown())).default([]),
  }),
)

/** Asks a gateway about its config and servers. Rejects with an `UnusableInput`. */
export async function gatewayFacts(control: Control): Promise<GatewayFacts> {
  const get = async <Value>(path: string, schema: z.ZodType<Value>): Promise<Value> => {
    const answered = await control({ method: 'GET', path })
    if (!answered.ok) throw new UnusableInput(answered.message)
    const read = schema.safeParse(answered.value)
    if (read.success) return read.data
    throw new UnusableInput(`the control port does not answer like a gateway: GET ${path}`)
  }
  const { hash, config } = await get('/admin/config', configured)
  const servers = await get('/admin/servers', listed)
  const joined = (values: readonly string[]) => [...new Set(values)].sort().join('+') || 'unknown'
  return {
    environment: config.gateway.environment,
    config: hash,
    policies: hashOf(config.policies),
    linksOf(names) {
      const own = servers.filter(({ name }) => names.includes(name))
      return {
        era: joined(own.flatMap(({ era }) => era.flatMap((known) => Object.keys(known)))),
        transport: joined(own.map(({ type }) => type)),
      }
    },
  }
}
