import { cleanUp, Gateway } from '../../e2e/support/gateway.ts'
import { startModernExtras } from '../../fixtures/modern-extras.ts'
import { closeAgents } from './agents.ts'
import { type LegacyExtras, startLegacyExtras } from './legacy-extras.ts'

/** One server per era; the era is its name in the config. */
export const eras = ['legacy', 'modern'] as const

export type Era = (typeof eras)[number]

/** Ways to reach a server, with the prefixes of its names there. */
export const routes = [
  { title: '/mcp/{server}', url: (gateway: Gateway, era: Era) => gateway.mcp(era), name: own, uri: own },
  {
    title: '/mcp',
    url: (gateway: Gateway) => gateway.mcp(),
    name: (era: Era, name: string) => `${era}__${name}`,
    uri: (era: Era, uri: string) => `breakwater://${era}/${uri}`,
  },
] as const

function own(_: Era, name: string): string {
  return name
}

/** A gateway before a legacy and a modern server with the same features. */
export interface Extras {
  readonly gateway: Gateway
  readonly legacy: LegacyExtras
  close(): Promise<void>
}

export async function startExtras(): Promise<Extras> {
  const [legacy, modern] = await Promise.all([startLegacyExtras(), startModernExtras()])
  const gateway = await Gateway.start({
    servers: { legacy: { url: legacy.url }, modern: { url: modern.url } },
  })
  await gateway.waitFor('up', ...eras)
  return {
    gateway,
    legacy,
    async close() {
      await closeAgents()
      await cleanUp()
      await Promise.all([legacy.close(), modern.close()])
    },
  }
}
